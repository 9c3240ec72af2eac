//! The saved states of one session, on disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brig_audit::Hash;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::atomic::{put_json, read_json};
use super::home::{CHECKPOINTS, Home};
use super::record::LayerRef;
use super::sweep::{at, is_missing};
use super::{Store, make_one};
use crate::{AgentId, CheckpointName, Error, Result, SessionId};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckpointRecord {
    pub version: u32,
    pub name: CheckpointName,
    pub created: Timestamp,
    /// Over the digests of the layers.
    pub digest: String,
    pub layers: Vec<LayerRef>,
}

impl CheckpointRecord {
    pub(crate) fn new(name: CheckpointName, layers: Vec<LayerRef>) -> Self {
        let digest = digest(&layers);
        Self {
            version: 1,
            name,
            created: Timestamp::now(),
            digest,
            layers,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }
}

fn digest(layers: &[LayerRef]) -> String {
    let mut lines = String::from("brig checkpoint 1\n");
    for layer in layers {
        lines.push_str(layer.digest.as_str());
        lines.push('\n');
    }
    Hash::of(lines.as_bytes()).to_string()
}

impl Store {
    /// Oldest first.
    pub(crate) fn checkpoints(
        &self,
        agent: &AgentId,
        id: &SessionId,
    ) -> io::Result<CheckpointListing> {
        let mut listing = listing(&self.session_path(agent, id))?;
        let by_age = |a: &CheckpointRecord, b: &CheckpointRecord| {
            (a.created, &a.name).cmp(&(b.created, &b.name))
        };
        listing.checkpoints.sort_by(by_age);
        Ok(listing)
    }
}

/// The records in the directory of a session, or an error if there may be others.
pub(super) fn checkpoints_in(session: &Path) -> io::Result<Vec<CheckpointRecord>> {
    listing(session)?.whole()
}

/// The checkpoints of a session, and the files of those that can't be read.
#[derive(Debug, Default)]
pub(crate) struct CheckpointListing {
    pub checkpoints: Vec<CheckpointRecord>,
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

impl CheckpointListing {
    /// All of them, or an error.
    pub(crate) fn whole(mut self) -> io::Result<Vec<CheckpointRecord>> {
        match self.unreadable.pop() {
            Some((path, error)) => Err(at(&path, error)),
            None => Ok(self.checkpoints),
        }
    }
}

fn listing(session: &Path) -> io::Result<CheckpointListing> {
    let mut list = CheckpointListing::default();
    let entries = match fs::read_dir(session.join(CHECKPOINTS)) {
        // Backups leave out directories that are empty.
        Err(error) if is_missing(&error) && session.is_dir() => return Ok(list),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            match read_json(&path) {
                Ok(record) => list.checkpoints.push(record),
                Err(error) => list.unreadable.push((path, error)),
            }
        }
    }
    Ok(list)
}

impl Home {
    /// A state whose record agrees with itself. Its layers are verified apart.
    pub(crate) fn checkpoint(&self, name: &CheckpointName) -> Result<CheckpointRecord> {
        let record: CheckpointRecord = match read_json(&self.checkpoint_path(name)) {
            Ok(record) => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoCheckpoint(name.to_string()));
            }
            Err(error) => return Err(tampered(name, error.to_string())),
        };
        if record.name != *name || record.digest != digest(&record.layers) {
            return Err(tampered(name, "its record is inconsistent"));
        }
        Ok(record)
    }

    pub(crate) fn has_checkpoint(&self, name: &CheckpointName) -> bool {
        self.checkpoint_path(name).exists()
    }

    pub(crate) fn write_checkpoint(&self, record: &CheckpointRecord) -> Result<()> {
        let write = || {
            self.store.note(&self.record, &record.layers)?;
            make_one(&self.path.join(CHECKPOINTS))?;
            put_json(&self.checkpoint_path(&record.name), record)
        };
        let put = write().map_err(|error| self.failed(error))?;
        put.confirmed(|| format!("checkpoint `{}` is saved", record.name))
    }

    pub(crate) fn remove_checkpoint(&self, name: &CheckpointName) -> Result<()> {
        let change = self.change()?;
        match fs::remove_file(self.checkpoint_path(name)) {
            Ok(()) => {
                change.collect();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                change.finish();
                Err(Error::NoCheckpoint(name.to_string()))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn checkpoint_path(&self, name: &CheckpointName) -> PathBuf {
        self.path.join(CHECKPOINTS).join(format!("{name}.json"))
    }
}

pub(crate) fn tampered(name: &CheckpointName, problem: impl Into<String>) -> Error {
    Error::CheckpointTampered {
        name: name.to_string(),
        problem: problem.into(),
    }
}
