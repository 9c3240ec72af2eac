//! The files of a session as a backend gets them and gives them back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the workspace of a new instance contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InitialState {
    /// No files.
    #[default]
    Empty,
    /// Host directories to stack, lowest first, for [`super::StateKind::Layered`]. Nothing is
    /// written to them.
    Layers(Vec<PathBuf>),
    /// A host directory to copy in, for [`super::StateKind::Copied`].
    Copy(PathBuf),
    /// What the backend keeps itself, for [`super::StateKind::Snapshots`].
    Snapshot(Snapshot),
}

impl InitialState {
    /// The host directories that it consists of, lowest first.
    pub fn directories(&self) -> &[PathBuf] {
        match self {
            InitialState::Empty | InitialState::Snapshot(_) => &[],
            InitialState::Layers(layers) => layers,
            InitialState::Copy(directory) => std::slice::from_ref(directory),
        }
    }
}

/// Files that a backend keeps itself. It never changes, and its handle is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// Only the backend knows what it means.
    pub handle: String,
    /// Over everything in it.
    pub digest: String,
    /// What its files take.
    pub bytes: u64,
}

/// What became of [`super::Instance::save`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The files are in the host directory that was given.
    Directory,
    /// The backend keeps them. It holds all files, not only what changed.
    Snapshot(Snapshot),
}

/// What a backend finds of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// Its content is that of its digest.
    Intact,
    /// Its content is not that of its digest.
    Changed,
    /// The backend does not have it.
    Missing,
}
