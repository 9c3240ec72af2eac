//! The folder that mirrors what an instance holds above its layers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, RenameFlags, mkdirat, renameat_with};
use rustix::io::Errno;

use crate::layers::NEXT;
use crate::{Error, Instance, Result};

/// Old or new as a whole: it is mirrored to a folder beside it, and then the two change places.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    path: PathBuf,
    /// The folder it lies in: another session may have its path by now.
    home: Arc<OwnedFd>,
    name: String,
}

impl Head {
    pub fn at(home: &Arc<OwnedFd>, session: &Path, name: String) -> Self {
        Self {
            path: session.join(&name),
            home: Arc::clone(home),
            name,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub async fn save(&self, instance: &dyn Instance) -> Result<()> {
        let next = format!("{}.{NEXT}", self.name);
        let failed = |error: Errno| Error::io("the files of the session", io::Error::from(error));
        let home = self.home.as_ref();
        // Not made again if the session was destroyed meanwhile.
        match mkdirat(home, &next, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let pinned = PathBuf::from(format!("/proc/self/fd/{}", home.as_raw_fd()));
        instance.save(&pinned.join(&next)).await?;
        renameat_with(home, &next, home, &self.name, RenameFlags::EXCHANGE).map_err(failed)
    }
}
