//! Whether a session still stands: another process may destroy it while something runs here, and
//! can only end an instance itself that has a process id.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

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
            let Some(instance) = instance.upgrade().filter(|instance| instance.is_alive()) else {
                return;
            };
            if !standing.holds() {
                // What can't be ended now is removed by the next sweep.
                let _ = instance.destroy().await;
                return;
            }
        }
    });
    Ok(())
}

struct Standing {
    folder: PathBuf,
    identity: (u64, u64),
}

impl Standing {
    fn of(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            identity: identity(&folder.symlink_metadata()?),
        })
    }

    /// A session of the same name that was made since is another one.
    fn holds(&self) -> bool {
        let found = self.folder.symlink_metadata();
        found.is_ok_and(|found| identity(&found) == self.identity)
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
