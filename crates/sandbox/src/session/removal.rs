//! Another process may destroy a session while something runs here. It ends the instance itself if
//! that has a process id or a lease. Any other instance is ended here when the session's directory is
//! gone.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::Instance;

/// How soon it is noticed.
const INTERVAL: Duration = Duration::from_millis(200);

/// Ends an instance that no other process can end when the directory of its session is removed.
pub(super) fn follow(instance: &Arc<dyn Instance>, directory: &Path) -> io::Result<()> {
    if instance.process_id().is_some() || instance.lease().is_some() {
        return Ok(());
    }
    let directory = Watched::open(directory)?;
    let instance: Weak<dyn Instance> = Arc::downgrade(instance);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(instance) = instance.upgrade() else {
                return;
            };
            if !instance.is_alive() || !directory.in_place() {
                // If this fails, the next sweep removes it.
                let _ = instance.destroy().await;
                return;
            }
        }
    });
    Ok(())
}

struct Watched {
    path: PathBuf,
    /// Open, so that no other directory can get its inode number.
    directory: OwnedFd,
}

impl Watched {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            directory: rustix::fs::open(path, flags, Mode::empty())?,
        })
    }

    /// Whether the path still leads to it. A new session may have the same name.
    fn in_place(&self) -> bool {
        let own = rustix::fs::fstat(&self.directory);
        let found = self.path.symlink_metadata();
        let (Ok(own), Ok(found)) = (own, found) else {
            return false;
        };
        (own.st_dev, own.st_ino) == (found.dev(), found.ino())
    }
}
