//! A directory for one process, where none was given to keep sessions in.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

use super::flock::FileLock;
use super::home::LOCK;
use super::sweep::{entries, is_abandoned};

const PREFIX: &str = "brig-sessions-";

#[derive(Debug)]
pub(super) struct Temporary {
    directory: TempDir,
    _lock: FileLock,
}

impl Temporary {
    /// Those of dead processes are removed on the way.
    pub(super) fn make() -> io::Result<Self> {
        for entry in entries(&std::env::temp_dir()) {
            if is_ours(&entry) && is_abandoned(&entry) {
                let _ = fs::remove_dir_all(&entry);
            }
        }
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = FileLock::try_exclusive(&directory.path().join(LOCK))?;
        Ok(Self {
            directory,
            _lock: lock.ok_or(io::ErrorKind::WouldBlock)?,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Others may make a directory of that name too; what is in theirs is not to be touched.
fn is_ours(path: &Path) -> bool {
    let named = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let uid = rustix::process::geteuid().as_raw();
    named
        && path
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
}
