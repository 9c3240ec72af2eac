//! Where files come from. Everything that a run reads comes through here, so that tests can count.

use std::io::{self, Read};
use std::path::Path;

use brig_schema::MAX_BYTES;

pub trait Source {
    /// The file, or as much of it as shows that it is too large.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Source for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // In a directory that a sandbox may write to, this name may be a device or a pipe.
        let mut text = Vec::new();
        brig_input::open(path)?
            .take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut text)?;
        Ok(text)
    }
}
