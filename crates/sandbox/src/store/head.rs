//! The directory that mirrors what an instance contains above its layers, or refers to a snapshot of
//! it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_layers::NEXT;
use rustix::fs::{Mode, RenameFlags, mkdirat, renameat_with};
use rustix::io::Errno;

use super::atomic::write_note;
use super::home::LEASE;
use super::{Store, blocking, remove_tree};
use crate::backend::{Lease, Saved};
use crate::{BackendId, Error, Instance, Result};

/// Old or new as a whole: it is mirrored to a directory beside it, and then the two are exchanged.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    path: PathBuf,
    /// The directory it is in: another session may have its path by now.
    home: Arc<OwnedFd>,
    name: String,
    /// Where snapshots are listed, if the backend keeps the files.
    snapshots: Option<(Store, BackendId)>,
}

impl Head {
    pub(crate) fn at(
        home: &Arc<OwnedFd>,
        session: &Path,
        name: String,
        snapshots: Option<(Store, BackendId)>,
    ) -> Self {
        Self {
            path: session.join(&name),
            home: Arc::clone(home),
            name,
            snapshots,
        }
    }

    /// Whether the backend keeps the files.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.snapshots.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) async fn save(&self, instance: &dyn Instance) -> Result<()> {
        let next = format!("{}.{NEXT}", self.name);
        let failed = |error: Errno| Error::io("the files of the session", io::Error::from(error));
        let home = self.home.as_ref();
        // Not made again if the session was destroyed meanwhile.
        match mkdirat(home, &next, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let saved = instance.save(&self.pinned().join(&next)).await;
        if saved.is_err() && self.snapshots.is_none() {
            self.forget_attempt(&next).await;
        }
        match (saved?, &self.snapshots) {
            (Saved::Directory, None) => {
                renameat_with(home, &next, home, &self.name, RenameFlags::EXCHANGE).map_err(failed)
            }
            (Saved::Snapshot(snapshot), Some((store, backend))) => {
                let (store, backend) = (store.clone(), backend.clone());
                let head = self.clone();
                blocking(move || {
                    let path = head.pinned().join(&head.name);
                    store.set_head_snapshot(&backend, snapshot, &path)
                })
                .await
            }
            _ => Err(Error::Protocol(
                "the backend saved files in another way than it declared".into(),
            )),
        }
    }

    /// Removes what an attempt to save left, so that it does not add up with that of others.
    async fn forget_attempt(&self, next: &str) {
        // Whole, because the paths need its descriptor.
        let (head, next) = (self.clone(), next.to_owned());
        let _ = blocking(move || {
            for name in [format!("{next}.part"), next] {
                // Each is tried. What can't be removed is removed when the session is opened.
                let _ = remove_tree(&head.pinned().join(name));
            }
            Ok(())
        })
        .await;
    }

    /// Keeps the lease of an instance that was used.
    pub(crate) fn keep_lease(&self, lease: &Lease) -> Result<()> {
        write_note(&self.pinned().join(LEASE), lease)
            .map_err(|error| Error::io("the lease of the session", error))
    }

    /// A path to the session's directory, whatever becomes of its name.
    fn pinned(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.home.as_raw_fd()))
    }
}
