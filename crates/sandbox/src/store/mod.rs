//! Sessions on disk. Everything here may be killed at any moment and leaves either the old or the
//! new state; what else it leaves is swept at the next start.
//!
//! ```text
//! sessions/<agent>/<id>/   session.json, checkpoints/, head-<n>/, and who has it open
//! layers/<digest>/         saved states, shared by all sessions
//! references/              which session needs which of them, also while the session is not there
//! snapshots/<digest>.json  saved states that backends keep
//! staging/, trash/         on the way in and on the way out
//! ```

mod atomic;
mod checkpoint;
mod find;
mod flock;
mod head;
mod home;
mod network;
mod owner;
mod pool;
mod record;
mod references;
mod snapshots;
mod sweep;
mod temporary;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Access, access};
use rustix::io::Errno;

pub(crate) use checkpoint::{CheckpointListing, CheckpointRecord, tampered};
pub(crate) use head::Head;
pub(crate) use home::{AtBackend, Home, Opening, Removal};
pub(crate) use network::NetworkFile;
pub(crate) use owner::Process;
pub(crate) use record::SessionRecord;
pub(crate) use references::Missing;
use sweep::is_missing;

use self::temporary::Temporary;
use crate::{AgentId, Error, Result, SessionId};

const DIRECTORIES: [&str; 5] = ["sessions", "layers", "staging", "trash", REFERENCES];
const REFERENCES: &str = "references";
const SESSION_IN_TRASH: &str = "session-";

/// A directory of state.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: PathBuf,
    /// Goes with the last who uses it.
    _temporary: Option<Arc<Temporary>>,
}

impl Store {
    /// Makes the directories that are missing and sweeps what a crash left.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("state directory `{}`", root.display()), error);
        make_directory(root).map_err(failed)?;
        let root = fs::canonicalize(root).map_err(failed)?;
        for name in DIRECTORIES {
            let made = make_directory(&root.join(name));
            // Made when it is needed, if this is an older directory on a medium that can't be written.
            if name != REFERENCES {
                made.map_err(failed)?;
            }
        }
        let store = Self {
            root,
            _temporary: None,
        };
        store.sweep();
        Ok(store)
    }

    /// The directories that this user may not write.
    pub(crate) fn unwritable(&self) -> Vec<(PathBuf, io::Error)> {
        let mut unwritable = Vec::new();
        for name in DIRECTORIES {
            let path = self.root.join(name);
            match access(&path, Access::WRITE_OK | Access::EXEC_OK) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => unwritable.push((path, error.into())),
            }
        }
        unwritable
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn session_path(&self, agent: &AgentId, id: &SessionId) -> PathBuf {
        self.root
            .join("sessions")
            .join(agent.as_str())
            .join(id.as_str())
    }

    /// Where a session goes that is destroyed. What else is in the trash was written by code in a sandbox.
    fn fresh_session_in_trash(&self) -> PathBuf {
        let name = format!("{SESSION_IN_TRASH}{}", uuid::Uuid::new_v4().simple());
        self.root.join("trash").join(name)
    }

    fn fresh(&self, directory: &str) -> PathBuf {
        self.root
            .join(directory)
            .join(uuid::Uuid::new_v4().simple().to_string())
    }
}

/// Where sessions are kept.
#[derive(Debug)]
pub(crate) enum Storage {
    Durable(Store),
    /// As long as the process lives; made when it is first needed.
    Temporary(OnceLock<Store>),
}

impl Storage {
    pub(crate) fn durable(&self) -> Option<&Store> {
        match self {
            Storage::Durable(store) => Some(store),
            Storage::Temporary(_) => None,
        }
    }

    pub(crate) fn store(&self) -> Result<&Store> {
        let cell = match self {
            Storage::Durable(store) => return Ok(store),
            Storage::Temporary(cell) => cell,
        };
        if let Some(store) = cell.get() {
            return Ok(store);
        }
        let directory =
            Temporary::make().map_err(|error| Error::io("temporary directory", error))?;
        let mut store = Store::open(directory.path())?;
        store._temporary = Some(Arc::new(directory));
        Ok(cell.get_or_init(|| store))
    }
}

/// One directory for its owner alone, in one that exists: a session that was destroyed meanwhile is not made again.
pub(crate) fn make_one(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Removes a tree, with directories that its owner had closed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    // Others may remove it at the same time: each takes away what another is about to look at.
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_directories(path)?
            }
            Err(error) if is_missing(&error) => match path.symlink_metadata() {
                Err(error) if is_missing(&error) => return Ok(()),
                _ => {}
            },
            removed => return removed,
        }
    }
    fs::remove_dir_all(path)
}

const TRIES: usize = 100;

fn open_directories(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

/// For its owner alone.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Runs something slow on a thread where it does not block others.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::InstanceLost(format!("interrupted: {error}"))),
    }
}
