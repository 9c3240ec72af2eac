//! Whether a session still stands: another process may destroy it while something runs here, and
//! can only end an instance itself that has a process id.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::Instance;

/// How soon it is noticed.
const LOOK: Duration = Duration::from_millis(200);

/// Ends an instance that nobody else can end when the folder of its session is taken away.
pub(super) fn follow(instance: &Arc<dyn Instance>, folder: &Path) -> io::Result<()> {
    if instance.process_id().is_some() {
        return Ok(());
    }
    let standing = Standing::of(folder)?;
    let instance: Weak<dyn Instance> = Arc::downgrade(instance);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(instance) = instance.upgrade() else {
                return;
            };
            if !instance.is_alive() || !standing.holds() {
                // What can't be ended now is removed by the next sweep.
                let _ = instance.destroy().await;
                return;
            }
        }
    });
    Ok(())
}

struct Standing {
    path: PathBuf,
    /// Open, so that no other can get its number.
    folder: OwnedFd,
}

impl Standing {
    fn of(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            folder: rustix::fs::open(path, flags, Mode::empty())?,
        })
    }

    /// A session of the same name that was made since is another one.
    fn holds(&self) -> bool {
        let own = rustix::fs::fstat(&self.folder);
        let found = self.path.symlink_metadata();
        let (Ok(own), Ok(found)) = (own, found) else {
            return false;
        };
        (own.st_dev, own.st_ino) == (found.dev(), found.ino())
    }
}
