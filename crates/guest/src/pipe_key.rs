//! Marks what the guest and a keeper send each other over pipes. Some kernels let a program open the descriptors of
//! any process of the same user: what it writes there must not count as the word of either.

use std::io;

use brig_wire::{Seal, SealKey};

/// Random, and in the memory of the guest and of one keeper alone.
#[derive(Clone)]
pub(crate) struct PipeKey(SealKey);

impl PipeKey {
    pub(crate) fn new() -> io::Result<Self> {
        let mut key = SealKey::default();
        let count = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        // The kernel never gives less of so few.
        if count != key.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self(key))
    }

    fn mark(&self, bytes: &[u8]) -> [u8; 8] {
        Seal::new(self.0).mark(bytes)
    }

    /// The bytes with their mark.
    pub(crate) fn marked(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let mark = self.mark(&bytes);
        bytes.extend(mark);
        bytes
    }

    pub(crate) fn accepts(&self, bytes: &[u8], mark: &[u8; 8]) -> bool {
        self.mark(bytes) == *mark
    }
}

impl std::fmt::Debug for PipeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipeKey").finish_non_exhaustive()
    }
}
