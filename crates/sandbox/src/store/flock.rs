//! Locks between processes. The kernel lets go of them when their process dies.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::sweep::is_missing;

const POLL: Duration = Duration::from_millis(20);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    path: PathBuf,
    file: File,
}

impl FileLock {
    /// `None` if another process has it.
    pub(super) fn try_exclusive(path: &Path) -> io::Result<Option<Self>> {
        Self::take(path, FlockOperation::NonBlockingLockExclusive)
    }

    pub(super) fn try_shared(path: &Path) -> io::Result<Option<Self>> {
        Self::take(path, FlockOperation::NonBlockingLockShared)
    }

    pub(super) fn exclusive(path: &Path) -> io::Result<Option<Self>> {
        Self::take(path, FlockOperation::LockExclusive)
    }

    pub(super) fn shared(path: &Path) -> io::Result<Option<Self>> {
        Self::take(path, FlockOperation::LockShared)
    }

    /// A new file that is locked when it gets its name: one that is not locked was abandoned.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let begun = path.with_extension("new");
        let lock = Self::try_exclusive(&begun)?.ok_or(io::ErrorKind::WouldBlock)?;
        std::fs::rename(&begun, path)?;
        Ok(lock.moved(path.into()))
    }

    fn take(path: &Path, operation: FlockOperation) -> io::Result<Option<Self>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match flock(&file, operation) {
            Ok(()) => Ok(Some(Self {
                path: path.into(),
                file,
            })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The lock, if nobody has it for long.
    pub(super) fn within(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let until = Instant::now() + patience;
        loop {
            let lock = Self::try_exclusive(path)?;
            if lock.is_some() || Instant::now() >= until {
                return Ok(lock);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Whether its name still leads to it. It does not when its directory was taken away.
    pub(super) fn in_place(&self) -> bool {
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(own), Ok(named)) => (own.dev(), own.ino()) == (named.dev(), named.ino()),
            // What can't be looked at is still there.
            (_, Err(error)) => !is_missing(&error),
            (Err(_), _) => false,
        }
    }

    /// The directory of the lock got another name.
    pub(super) fn moved(mut self, path: PathBuf) -> Self {
        self.path = path;
        self
    }
}
