//! A keyed mark after every frame of a guest in a container. Some kernels let code open the descriptors of the
//! guest: what it writes there must not count as the guest's word, nor cover it.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

pub(crate) const MARK: usize = 8;

/// Random, and known to the owner and the guest alone.
pub type SealKey = [u8; 16];

/// One side of the stream. Both count the frames, so none can be left out, repeated or moved.
#[derive(Clone)]
pub struct Seal {
    key: SealKey,
    frames: u64,
}

impl Seal {
    pub fn new(key: SealKey) -> Self {
        Self { key, frames: 0 }
    }

    /// The mark of the next frame, given with its header.
    pub fn mark(&mut self, frame: &[u8]) -> [u8; MARK] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&self.frames.to_le_bytes());
        hasher.write(frame);
        self.frames += 1;
        hasher.finish().to_le_bytes()
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}
