//! What a backend can do with a config, and why it can't be used at all.

use std::time::Duration;

use brig_reason::ReasonCode;

use super::Options;
use crate::{Controls, Error};

/// Why a backend can't run a config here and now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// A stable reason code, such as `backend.unavailable`.
    pub code: ReasonCode,
    /// In a few words, for the user.
    pub reason: String,
    /// A command or a step that would change it.
    pub fix: Option<String>,
}

impl Unavailable {
    /// With the general code, and no fix.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            code: ReasonCode::BackendUnavailable,
            reason: reason.into(),
            fix: None,
        }
    }
}

impl From<Error> for Unavailable {
    fn from(error: Error) -> Self {
        Self {
            code: error.reason(),
            reason: error.to_string(),
            fix: error.hint(),
        }
    }
}

/// The answer to [`crate::Backend::probe`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// What it enforces, and how strongly.
    pub controls: Controls,
    /// How files are brought in and saved.
    pub state: StateKind,
    /// How long its instances exist.
    pub lifetime: Lifetime,
    /// Whether code can be kept from renaming directories and removing links in a writable mount.
    /// If not, more is hidden.
    pub pins_names: bool,
    /// How many files and directories can be hidden one by one. If there are more, the directories
    /// that contain them are hidden.
    pub most_hidden: usize,
    /// Settings that this backend does not have.
    pub unsupported: Vec<Unsupported>,
    /// Values of options that the config leaves to the backend. If a sandbox can't be created, the backend
    /// is asked again, and may have learned to choose something else.
    pub chosen: Options,
    /// What the user should know about that choice, a line each.
    pub notes: Vec<String>,
}

impl Capabilities {
    /// Of a backend that copies files and whose instances end with their owner.
    pub fn new(controls: Controls) -> Self {
        Self {
            controls,
            state: StateKind::Copied,
            lifetime: Lifetime::Owner,
            pins_names: false,
            most_hidden: 1000,
            unsupported: Vec::new(),
            chosen: Options::new(),
            notes: Vec::new(),
        }
    }
}

/// How a backend takes the saved files of a session, and how it saves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateKind {
    /// It stacks host directories, and saves what was written above them to a host directory.
    Layered,
    /// It copies one host directory in, and copies all files out to one, over whatever it has:
    /// a mount, or a stream.
    Copied,
    /// It keeps saved files itself, and gives a handle for them.
    Snapshots,
}

/// How long an instance exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifetime {
    /// It ends with the process that created it.
    Owner,
    /// It goes on without that process, and another one can join it. It ends this long after it
    /// was last used.
    Lease(Duration),
}

/// A setting of the config that a backend does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Which one.
    pub setting: Setting,
    /// What to use instead.
    pub instead: &'static str,
}

/// A setting that not every backend has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// [`crate::SessionConfig::rootfs`].
    Rootfs,
    /// [`crate::SessionConfig::python`].
    Python,
}

impl Setting {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Setting::Rootfs => "a root file system",
            Setting::Python => "a Python of the host",
        }
    }
}
