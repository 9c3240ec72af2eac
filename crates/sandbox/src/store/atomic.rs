//! Files that are either the old or the new one, and on disk when the call returns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

const NEW: &str = "new";

/// A record is a few kilobytes, and one with the largest policies still less than this.
const LARGEST: u64 = 64 << 20;

/// The directory must exist: a session that was destroyed meanwhile is not made again.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    match put_json(path, value)? {
        Put::Safe => Ok(()),
        Put::Unconfirmed(error) => Err(error),
    }
}

/// A file that is in place.
#[derive(Debug)]
#[must_use]
pub(super) enum Put {
    Safe,
    /// It may be lost with the machine.
    Unconfirmed(io::Error),
}

impl Put {
    /// An error says what was done.
    pub(super) fn confirmed(self, done: impl FnOnce() -> String) -> Result<()> {
        match self {
            Self::Safe => Ok(()),
            Self::Unconfirmed(error) => Err(Error::unconfirmed(done(), error)),
        }
    }
}

/// The same where it matters whether the file is in place after an error: then it is not.
pub(super) fn put_json(path: &Path, value: &impl Serialize) -> io::Result<Put> {
    // What can fail before is done before.
    let directory = File::open(path.parent().unwrap_or(path))?;
    write(path, value)?.sync_data()?;
    commit(path)?;
    Ok(directory
        .sync_all()
        .map_or_else(Put::Unconfirmed, |()| Put::Safe))
}

/// The same for what is of no use after the machine went down.
pub(super) fn write_note(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write(path, value)?;
    commit(path)
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<File> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path.with_extension(NEW))?;
    file.write_all(&bytes)?;
    Ok(file)
}

fn commit(path: &Path) -> io::Result<()> {
    fs::rename(path.with_extension(NEW), path)
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&read_bytes(path)?)?)
}

pub(super) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    brig_input::read(path, LARGEST)
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
