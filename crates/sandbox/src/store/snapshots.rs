//! The snapshots that backends keep for sessions. Each is listed here, in a file of its own, so that
//! it is deleted when nothing refers to it any more, whatever happens to the processes in between.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::atomic::{read_json, write_json};
use super::flock::FileLock;
use super::pool::{CHANGING, COLLECTING};
use super::record::{LayerDigest, LayerRef};
use super::{Store, make_directory};
use crate::backend::Snapshot;
use crate::{BackendId, Error, Result};

const DIRECTORY: &str = "snapshots";
/// In the head directory of a session.
const HEAD: &str = "snapshot.json";
/// About to be deleted by its backend.
const DELETING: &str = "deleting";

#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    backend: BackendId,
    snapshot: Snapshot,
}

/// A snapshot that nothing refers to.
#[derive(Debug)]
pub(crate) struct Unused {
    pub snapshot: Snapshot,
    path: PathBuf,
}

impl Store {
    pub(super) fn snapshot_path(&self, digest: &LayerDigest) -> PathBuf {
        let name = format!("{digest}.json");
        self.root.join(DIRECTORY).join(name)
    }

    /// Makes a snapshot the head of a session. `head`: the head directory.
    pub(super) fn set_head_snapshot(
        &self,
        backend: &BackendId,
        snapshot: Snapshot,
        head: &Path,
    ) -> Result<()> {
        let set = || -> io::Result<()> {
            // Nothing is deleted between the list and the reference.
            let _lock = FileLock::shared(&self.pool_lock(), COLLECTING)?;
            make_directory(&self.root.join(DIRECTORY))?;
            let layer = LayerRef::of(snapshot.clone());
            let listed = Listed {
                backend: backend.clone(),
                snapshot: snapshot.clone(),
            };
            write_json(&self.snapshot_path(&layer.digest), &listed)?;
            write_json(&head.join(HEAD), &snapshot)
        };
        set().map_err(failed)
    }

    /// Takes the snapshots of a backend that nothing refers to. Whoever takes them deletes them.
    pub(crate) fn take_unused_snapshots(&self, backend: &BackendId) -> Result<Vec<Unused>> {
        let take = || -> io::Result<Vec<Unused>> {
            let _lock = FileLock::exclusive(&self.pool_lock(), CHANGING)?;
            // A record that can't be read may refer to anything.
            let Ok(used) = self.referred() else {
                return Ok(Vec::new());
            };
            let entries = match fs::read_dir(self.root.join(DIRECTORY)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            let mut unused = Vec::new();
            for entry in entries {
                let path = entry?.path();
                let Ok(listed) = read_json::<Listed>(&path) else {
                    continue;
                };
                let layer = LayerRef::of(listed.snapshot.clone());
                let deleting = path.extension().is_some_and(|kind| kind == DELETING);
                if listed.backend != *backend || (!deleting && used.contains(&layer.digest)) {
                    continue;
                }
                let taken = path.with_extension(DELETING);
                fs::rename(&path, &taken)?;
                unused.push(Unused {
                    snapshot: listed.snapshot,
                    path: taken,
                });
            }
            Ok(unused)
        };
        take().map_err(failed)
    }
}

impl Unused {
    /// Its backend has deleted it.
    pub(crate) fn forget(&self) -> Result<()> {
        fs::remove_file(&self.path).map_err(failed)
    }
}

/// The snapshot that is the head of a session.
pub(super) fn head_snapshot(head: &Path) -> io::Result<Option<Snapshot>> {
    match read_json(&head.join(HEAD)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("saved snapshots", error)
}
