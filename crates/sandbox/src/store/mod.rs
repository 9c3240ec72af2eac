//! Sessions on disk. Everything here may be killed at any moment and leaves either the old or the
//! new state; what else it leaves is swept at the next start.
//!
//! ```text
//! sessions/<agent>/<id>/   session.json, checkpoints/, head-<n>/, and who has it open
//! layers/<digest>/         saved states, shared by all sessions
//! staging/, trash/         on the way in and on the way out
//! ```

mod atomic;
mod checkpoint;
mod flock;
mod head;
mod home;
mod network;
mod owner;
mod pool;
mod record;
mod sweep;
mod temporary;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub(crate) use checkpoint::{CheckpointRecord, tampered};
pub(crate) use head::Head;
pub(crate) use home::{Home, Opening};
pub(crate) use network::NetworkFile;
pub(crate) use record::SessionRecord;

use self::temporary::Temporary;
use crate::{AgentId, Error, Result, SessionId};

/// A folder of state.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: PathBuf,
    /// Goes with the last who uses it.
    _temporary: Option<Arc<Temporary>>,
}

impl Store {
    /// Makes the folders that are missing and sweeps what a crash left.
    pub fn open(root: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("state folder `{}`", root.display()), error);
        make_folder(root).map_err(failed)?;
        let root = fs::canonicalize(root).map_err(failed)?;
        for name in ["sessions", "layers", "staging", "trash"] {
            make_folder(&root.join(name)).map_err(failed)?;
        }
        let store = Self {
            root,
            _temporary: None,
        };
        store.sweep();
        Ok(store)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn session_path(&self, agent: &AgentId, id: &SessionId) -> PathBuf {
        self.root
            .join("sessions")
            .join(agent.as_str())
            .join(id.as_str())
    }

    fn fresh(&self, folder: &str) -> PathBuf {
        self.root
            .join(folder)
            .join(uuid::Uuid::new_v4().simple().to_string())
    }
}

/// Where sessions are kept.
#[derive(Debug)]
pub(crate) enum Place {
    Durable(Store),
    /// As long as the process lives; made when it is first needed.
    Temporary(OnceLock<Store>),
}

impl Place {
    pub fn durable(&self) -> Option<&Store> {
        match self {
            Place::Durable(store) => Some(store),
            Place::Temporary(_) => None,
        }
    }

    pub fn store(&self) -> Result<&Store> {
        let cell = match self {
            Place::Durable(store) => return Ok(store),
            Place::Temporary(cell) => cell,
        };
        if let Some(store) = cell.get() {
            return Ok(store);
        }
        let folder = Temporary::make().map_err(|error| Error::io("temporary folder", error))?;
        let mut store = Store::open(folder.path())?;
        store._temporary = Some(Arc::new(folder));
        Ok(cell.get_or_init(|| store))
    }
}

/// For its owner alone.
fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Runs something slow where it does not hold up others.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::InstanceLost(format!("interrupted: {error}"))),
    }
}
