//! What an isolation technology must offer.

mod capabilities;
mod id;
mod lease;
mod options;
mod state;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use brig_audit::Egress;
use brig_egress::{Layer, RuleSet};
use bytes::Bytes;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};

pub use capabilities::{Capabilities, Lifetime, Setting, StateKind, Unavailable, Unsupported};
pub use id::{BackendId, InvalidBackendId};
pub use lease::Lease;
pub use options::{BackendKind, OptionSpec, Options, any};
pub use state::{InitialState, Saved, Snapshot, SnapshotState};

pub use crate::execution::{ExecSignal, Execution};
pub use crate::lifecycle::Permit;
use crate::{Error, Finding, Language, Outcome, Plan, Result, SessionConfig};

/// An isolation technology.
#[async_trait]
pub trait Backend: Send + Sync + Debug {
    /// Its kind and its name in the user's configuration. Sessions remember it.
    fn id(&self) -> &BackendId;

    /// Its options.
    fn kind(&self) -> &'static BackendKind;

    /// What it can enforce of this config here and now, or why it can't run it at all. Called for
    /// every plan, so what does not change is looked up once.
    async fn probe(&self, config: &SessionConfig) -> Result<Capabilities, Unavailable>;

    /// What was found of all that it needs, for `brig doctor`. `state`: where sessions are kept.
    async fn findings(&self, _state: Option<&Path>) -> Vec<Finding> {
        Vec::new()
    }

    /// The languages that a sandbox of this plan has an interpreter for. `None` if that is not known before one runs.
    fn languages(&self, _plan: &Plan) -> Option<Vec<Language>> {
        None
    }

    /// Starts a sandbox. On an error nothing is left behind.
    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>>;

    /// Connects to an instance that another process created, by the handle of its lease. `None` if it
    /// ended. Only for [`Lifetime::Lease`].
    async fn join(&self, _plan: &Plan, _handle: &str) -> Result<Option<Box<dyn Instance>>> {
        Ok(None)
    }

    /// Ends an instance by the handle of its lease. One that ended already is no error. Returns what was decided
    /// about its network and nobody has recorded yet: as [`Instance::unattributed`].
    async fn end(&self, _handle: &str) -> Result<Vec<Egress>> {
        Ok(Vec::new())
    }

    /// Only for [`StateKind::Snapshots`].
    async fn check_snapshot(&self, _snapshot: &Snapshot) -> Result<SnapshotState> {
        Ok(SnapshotState::Missing)
    }

    /// Deletes a snapshot that nothing refers to. One that is gone already is no error.
    async fn delete_snapshot(&self, _snapshot: &Snapshot) -> Result<()> {
        Ok(())
    }

    /// Removes what it keeps for a session beside its files, such as a cache. Called before the directory of the
    /// session is removed; what is left is for [`Backend::sweep`].
    async fn forget(&self, _session: &Path) {}

    /// Removes what instances of dead owners left behind; returns how many there were.
    async fn sweep(&self) -> Result<usize>;
}

/// What [`crate::Sandbox::builder`] takes: a backend, or one that is shared.
pub trait IntoBackend {
    /// The backend, to be shared.
    fn into_backend(self) -> Arc<dyn Backend>;
}

impl<B: Backend + 'static> IntoBackend for B {
    fn into_backend(self) -> Arc<dyn Backend> {
        Arc::new(self)
    }
}

impl<B: Backend + 'static> IntoBackend for Arc<B> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self
    }
}

impl IntoBackend for Arc<dyn Backend> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self
    }
}

/// One running sandbox.
#[async_trait]
pub trait Instance: Send + Sync + Debug {
    /// Runs exactly once, whatever happens. May be called side by side.
    async fn execute(&self, permit: Permit, execution: Execution) -> Result<Outcome>;

    /// Writes a file below the workspace; never follows a symbolic link.
    async fn put_file(
        &self,
        path: &str,
        mode: u32,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<u64>;

    /// Reads a regular file below the workspace; never follows a symbolic link.
    async fn get_file(&self, path: &str, into: &mut (dyn AsyncWrite + Send + Unpin))
    -> Result<u64>;

    /// Lists one directory below the workspace.
    async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>>;

    /// Keeps the files as they are now: makes the host directory `into` equal to what the workspace
    /// contains above the plan's layers, or to all it contains if its files were copied. Only what
    /// changed since the last call is written. A backend with [`StateKind::Snapshots`] keeps the
    /// files itself instead.
    async fn save(&self, into: &Path) -> Result<Saved>;

    /// Options without which its files make no sense, such as the exact image that they are changes
    /// of. They replace those of the config when the session starts again.
    fn pinned(&self) -> Options {
        Options::new()
    }

    /// By what another process can join the instance. Always for [`Lifetime::Lease`]: then dropping
    /// this value does not end the instance.
    fn lease(&self) -> Option<Lease> {
        None
    }

    /// The process of this machine that ends the instance when it is killed, if there is one.
    fn process_id(&self) -> Option<u32> {
        None
    }

    /// What runs it within the backend, such as a container runtime, if there are several.
    fn runtime(&self) -> Option<&str> {
        None
    }

    /// Whether it can still run something. One that can't never will again.
    fn is_alive(&self) -> bool;

    /// The network rules in force, wherever they are enforced. `None` without a network.
    async fn network(&self) -> Result<Option<Arc<RuleSet>>> {
        Ok(None)
    }

    /// Puts a layer of rules in place of the one of its kind. When it returns, the new rules are in
    /// force, and connections that are no longer allowed are closed.
    async fn change_network(&self, _layer: Layer) -> Result<()> {
        Err(Error::InvalidConfig {
            what: "network",
            problem: "this sandbox has no network".into(),
        })
    }

    /// What was decided about its network and belongs to no execution of this process, asked for before it is
    /// ended. Without names of hosts: secrets of the executions that may have sent them are not known any more.
    async fn unattributed(&self) -> Vec<Egress> {
        Vec::new()
    }

    /// Ends everything and frees everything. Calling it again is harmless.
    async fn destroy(&self) -> Result<()>;
}

/// Something that happened during an execution.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The program was started.
    Started,
    /// A piece of standard output.
    Stdout(Bytes),
    /// A piece of standard error.
    Stderr(Bytes),
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else, such as a socket.
    Other,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileEntry {
    /// Bytes that are not UTF-8 are shown as U+FFFD; `raw` has them all.
    pub name: String,
    /// The name as the bytes it has in the sandbox.
    #[serde(skip)]
    pub raw: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
}

impl FileEntry {
    /// With this name, as the bytes it has in the sandbox.
    pub fn new(raw: Vec<u8>, kind: FileKind, size: u64, mode: u32) -> Self {
        Self {
            name: String::from_utf8_lossy(&raw).into_owned(),
            raw,
            kind,
            size,
            mode,
        }
    }
}
