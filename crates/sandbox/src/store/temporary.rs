//! A directory for one process, where none was given to keep sessions in.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::flock::FileLock;
use super::home::LOCK;
use super::sweep::entries;

const PREFIX: &str = "brig-sessions-";
/// Younger directories without a lock may be about to get one.
const YOUNG: Duration = Duration::from_secs(60);

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
        let lock = FileLock::create(&directory.path().join(LOCK))?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

fn is_abandoned(directory: &Path) -> bool {
    let lock = directory.join(LOCK);
    if lock.exists() {
        return matches!(FileLock::try_exclusive(&lock), Ok(Some(_)));
    }
    let changed = directory.metadata().and_then(|meta| meta.modified());
    let age = changed
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > YOUNG)
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
