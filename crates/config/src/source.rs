//! Where files come from. Everything that a run reads comes through here, so that tests can count.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use brig_policy::MAX_BYTES;

pub trait Source {
    /// The file, or as much of it as shows that it is too large.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Source for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(path)?
            .take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut text)?;
        Ok(text)
    }
}
