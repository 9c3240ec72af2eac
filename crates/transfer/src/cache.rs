//! Files that the receiver has already, in a read-only directory beside the one that it fills: the sender names
//! them, and the receiver copies them from there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::file_reader::{Digest, hash_position};
use crate::record::{self, Time};
use crate::stamps::settled;

const PIECE: usize = 32 * 1024;

/// One state of a file that only its owner writes to, and replaces rather than changes. Not the time of its last
/// change: a hard link changes that. Inode numbers are reused, but not with the same time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    inode: u64,
    born: Time,
    modified: Time,
    size: u64,
}

impl FileIdentity {
    /// `None` if the file system does not record when a file was made, or if the file has holes, which a cache
    /// would fill.
    pub fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
        let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let dense = found.stx_blocks.saturating_mul(512) >= found.stx_size;
        Ok((has_birth && dense).then_some(Self {
            inode: found.stx_ino,
            born: record::time(found.stx_btime.tv_sec, found.stx_btime.tv_nsec.into()),
            modified: record::time(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into()),
            size: found.stx_size,
        }))
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// What is known of a file in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedFile {
    /// Its name there.
    pub number: u64,
    /// Of its content, by [`content_digest`].
    pub digest: Digest,
    /// When it was last changed, as a receiver reported that has compared its content.
    pub checked: Option<Time>,
}

/// The files in a cache, by what they are copies of.
pub type Cached = HashMap<FileIdentity, CachedFile>;

/// The digest of a whole file, as a sender computes it for one without holes.
pub fn content_digest(file: &File) -> io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut buffer = [0; PIECE];
    let mut at = 0;
    loop {
        let mut length = 0;
        while length < PIECE {
            match file.read_at(&mut buffer[length..], at + length as u64)? {
                0 => break,
                count => length += count,
            }
        }
        let piece = &buffer[..length];
        if piece.iter().any(|byte| *byte != 0) {
            hash_position(&mut hash, at, u32::try_from(length).unwrap_or(u32::MAX));
            hash.update(piece);
        }
        at += length as u64;
        if length < PIECE {
            return Ok(hash.finalize().into());
        }
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(crate) struct Cache {
    directory: OwnedFd,
    /// The files that have the expected content, and when they were last changed.
    checked: Vec<(u64, Time)>,
}

impl Cache {
    pub(crate) fn new(directory: OwnedFd) -> Self {
        Self {
            directory,
            checked: Vec::new(),
        }
    }

    /// Copies a file of this size. Fails with `ESTALE` if it is not what the sender takes it for.
    pub(crate) fn copy(&mut self, file: &CachedFile, size: u64, into: &File) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = file.number.to_string();
        let from = rustix::fs::openat(&self.directory, name, flags, Mode::empty());
        let from = File::from(from.map_err(|_| Errno::STALE)?);
        let found = rustix::fs::fstat(&from)?;
        let changed = record::time(found.st_ctime, found.st_ctime_nsec);
        if u64::try_from(found.st_size) != Ok(size) {
            return Err(Errno::STALE.into());
        }
        if file.checked != Some(changed) && content_digest(&from)? != file.digest {
            return Err(Errno::STALE.into());
        }
        if io::copy(&mut &from, &mut &*into)? != size {
            return Err(Errno::STALE.into());
        }
        if settled(changed) {
            self.checked.push((file.number, changed));
        }
        Ok(())
    }

    pub(crate) fn checked(self) -> Vec<(u64, Time)> {
        self.checked
    }
}
