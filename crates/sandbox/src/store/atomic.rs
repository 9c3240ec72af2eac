//! Files that are either the old or the new one, and on disk when the call returns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

const NEW: &str = "new";

/// A record is a few kilobytes, and one with the largest policies still less than this.
const LARGEST: u64 = 64 << 20;

/// The directory must exist: a session that was destroyed meanwhile is not made again.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write(path, value)?.sync_data()?;
    commit(path)?;
    sync_directory(path.parent().unwrap_or(path))
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
