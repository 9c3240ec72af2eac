//! The name of a layer: a digest over everything in it.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use brig_linux::directory::open_directory;
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::MAX_DEPTH;
use super::copy::{BLOCK, for_each_piece};
use super::walk::{Kind, Meta, is_opaque, meta, meta_at, names, too_deep};

/// What a layer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Hexadecimal.
    pub digest: String,
    /// What its entries take on disk, each at least a block: so many small ones are not for free.
    pub bytes: u64,
    /// Without the folder itself.
    pub entries: u64,
}

/// Blocks of zeros are left out, so that a hole and written zeros are the same and a huge hole
/// costs nothing.
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Reads the whole layer.
pub fn summarize(layer: &Path) -> io::Result<Summary> {
    let folder = open_directory(CWD, layer)?;
    let mut manifest = Manifest {
        hash: Sha256::new(),
        path: Vec::new(),
        bytes: 0,
        entries: 0,
        counted: HashSet::new(),
    };
    manifest.hash.update(b"brig layer 1\n");
    manifest.folder(&folder, &meta(&folder)?, 0)?;
    let digest = hex(&manifest.hash.finalize());
    Ok(Summary {
        digest,
        bytes: manifest.bytes,
        entries: manifest.entries,
    })
}

/// What an entry of a layer counts.
pub(super) fn weight(found: &Meta) -> u64 {
    match found.kind {
        Kind::File => (found.blocks * 512).max(BLOCK as u64),
        _ => BLOCK as u64,
    }
}

struct Manifest {
    hash: Sha256,
    /// Of the entry at hand, from the layer's root.
    path: Vec<u8>,
    bytes: u64,
    entries: u64,
    /// Inodes with several names.
    counted: HashSet<u64>,
}

impl Manifest {
    /// Every field has a fixed length or its length before it, so no two layers read the same.
    fn line(&mut self, kind: u8, mode: u32, size: u64, content: &[u8]) {
        self.hash.update([kind]);
        self.hash.update((self.path.len() as u64).to_le_bytes());
        self.hash.update(&self.path);
        self.hash.update(mode.to_le_bytes());
        self.hash.update(size.to_le_bytes());
        self.hash.update((content.len() as u64).to_le_bytes());
        self.hash.update(content);
    }

    fn folder(&mut self, folder: &OwnedFd, found: &Meta, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        self.line(b'd', found.mode, 0, &[u8::from(is_opaque(folder)?)]);
        for name in names(folder)? {
            let length = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(name.to_bytes());
            self.entry(folder, &name, depth)?;
            self.path.truncate(length);
            self.entries += 1;
        }
        Ok(())
    }

    fn entry(&mut self, folder: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        let found = meta_at(folder, name)?.ok_or(Errno::NOENT)?;
        if found.kind != Kind::File || found.links < 2 || self.counted.insert(found.inode) {
            self.bytes += weight(&found);
        }
        match found.kind {
            Kind::Folder => self.folder(&open_directory(folder, name)?, &found, depth + 1)?,
            Kind::File => {
                let content = hash_file(&open_file(folder, name)?, found.size)?;
                self.line(b'f', found.mode, found.size, &content);
            }
            Kind::Link => {
                let to = readlinkat(folder, name, Vec::new())?;
                self.line(b'l', 0, 0, to.as_bytes());
            }
            Kind::Whiteout => self.line(b'w', 0, 0, &[]),
            Kind::Other => self.line(b'o', found.mode, 0, &[]),
        }
        Ok(())
    }
}

/// Without touching the time of access, which says whether a copy is up to date.
pub(super) fn open_file(folder: &OwnedFd, name: &CStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(folder, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(folder, name, flags, Mode::empty()),
        other => other,
    };
    Ok(File::from(opened?))
}

fn hash_file(file: &File, size: u64) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    for_each_piece(file, size, |start, piece| {
        for (index, block) in piece.chunks(BLOCK).enumerate() {
            if block != &ZEROS[..block.len()] {
                hash.update((start + (index * BLOCK) as u64).to_le_bytes());
                hash.update(block);
            }
        }
        Ok(())
    })?;
    Ok(hash.finalize().into())
}

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digit = |value: u8| DIGITS[usize::from(value)];
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
