//! The checked combination of config and backend: what will be enforced, and by what.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Control, ControlState, Limits};

/// A plan can only be made by [`Plan::make`], which refuses what the backend can't hold.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) limits: Limits,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) mounts: Vec<CheckedMount>,
    pub(crate) workspace: Option<CheckedMount>,
    pub(crate) rootfs: Option<PathBuf>,
    pub(crate) read_only_root: bool,
    pub(crate) python: Option<PathBuf>,
    pub(crate) waived: Vec<Control>,
    pub(crate) enforcement: Vec<ControlState>,
    /// Saved states of the workspace to start from, lowest first.
    pub(crate) layers: Vec<PathBuf>,
}

/// A mount whose source was resolved and found harmless. Whoever mounts it must make sure that
/// what it opens is still this device and inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedMount {
    /// Absolute, without symbolic links.
    pub source: PathBuf,
    pub target: PathBuf,
    pub writable: bool,
    pub device: u64,
    pub inode: u64,
}

impl Plan {
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    pub fn mounts(&self) -> &[CheckedMount] {
        &self.mounts
    }

    pub fn workspace(&self) -> Option<&CheckedMount> {
        self.workspace.as_ref()
    }

    pub fn rootfs(&self) -> Option<&PathBuf> {
        self.rootfs.as_ref()
    }

    pub fn read_only_root(&self) -> bool {
        self.read_only_root
    }

    pub fn python(&self) -> Option<&PathBuf> {
        self.python.as_ref()
    }

    pub fn waived(&self) -> &[Control] {
        &self.waived
    }

    /// What holds each limit, and how strongly.
    pub fn enforcement(&self) -> &[ControlState] {
        &self.enforcement
    }

    pub fn layers(&self) -> &[PathBuf] {
        &self.layers
    }
}
