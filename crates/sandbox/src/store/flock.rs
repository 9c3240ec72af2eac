//! Locks between processes. The kernel lets go of them when their process dies.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::sweep::is_missing;
use crate::wait::Wait;

/// How long to wait between two looks: at first for those who are done at once.
const FIRST: Duration = Duration::from_micros(500);
const POLL: Duration = Duration::from_millis(20);
/// Longer than anybody has a lock that others wait for.
const PATIENCE: Duration = Duration::from_secs(60);

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

    /// The lock, which others have only for a short time. `doing`: what they do with it.
    pub(super) fn exclusive(path: &Path, doing: &str) -> io::Result<Self> {
        Self::patiently(path, FlockOperation::NonBlockingLockExclusive, doing)
    }

    pub(super) fn shared(path: &Path, doing: &str) -> io::Result<Self> {
        Self::patiently(path, FlockOperation::NonBlockingLockShared, doing)
    }

    fn patiently(path: &Path, operation: FlockOperation, doing: &str) -> io::Result<Self> {
        let (mut wait, mut pause) = (Wait::new(), FIRST);
        loop {
            if let Some(lock) = Self::take(path, operation)? {
                return Ok(lock);
            }
            let whom = || format!("{}, which {doing}", holder(path));
            if wait.is_over(PATIENCE, whom) {
                let problem = format!("gave up waiting for {}", whom());
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL);
        }
    }

    /// `None` if another process has it; an error if there is no such file.
    pub(super) fn try_existing(path: &Path) -> io::Result<Option<Self>> {
        Self::lock(
            OpenOptions::new(),
            path,
            FlockOperation::NonBlockingLockExclusive,
        )
    }

    /// A new file that is locked when it gets its name: one that is not locked was abandoned.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let begun = path.with_extension("new");
        let lock = Self::try_exclusive(&begun)?.ok_or(io::ErrorKind::WouldBlock)?;
        std::fs::rename(&begun, path)?;
        Ok(lock.moved(path.into()))
    }

    fn take(path: &Path, operation: FlockOperation) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).mode(0o600);
        Self::lock(options, path, operation)
    }

    fn lock(
        mut options: OpenOptions,
        path: &Path,
        operation: FlockOperation,
    ) -> io::Result<Option<Self>> {
        let file = options.read(true).write(true).open(path)?;
        match flock(&file, operation) {
            Ok(()) => Ok(Some(Self {
                path: path.into(),
                file,
            })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The lock, if nobody has it for long. `doing`: what they do with it.
    pub(super) fn within(path: &Path, patience: Duration, doing: &str) -> io::Result<Option<Self>> {
        let (mut wait, mut pause) = (Wait::new(), FIRST);
        loop {
            let lock = Self::try_exclusive(path)?;
            let whom = || format!("{}, which {doing}", holder(path));
            if lock.is_some() || wait.is_over(patience, whom) {
                return Ok(lock);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL);
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

/// Who has a file locked, in words.
fn holder(path: &Path) -> String {
    let holders = File::open(path).and_then(|file| brig_linux::locks::holders(&file));
    match holders.as_deref() {
        Ok([pid, ..]) => format!("process {pid}"),
        _ => "another process".into(),
    }
}
