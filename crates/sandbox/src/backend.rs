//! What an isolation technology must offer.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use brig_egress::Rules;
use brig_policy::Decision;
use bytes::Bytes;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::request::TerminalSize;
use crate::{
    Attempts, Controls, Error, ExecRequest, ExecutionId, KillReason, Limits, Outcome, Plan, Result,
    SessionConfig,
};

/// An isolation technology.
#[async_trait]
pub trait Backend: Send + Sync + Debug {
    fn name(&self) -> &'static str;

    /// What it can hold of these limits, here and now, and how strongly.
    fn controls(&self, limits: &Limits) -> Controls;

    /// The same, where more than the limits decides on it.
    fn controls_for(&self, config: &SessionConfig) -> Controls {
        self.controls(&config.limits)
    }

    /// Refuses what means nothing to this backend, so that nothing is ignored in silence.
    fn admit(&self, config: &SessionConfig) -> Result<()> {
        let given = [(&config.image, "an image"), (&config.runtime, "a runtime")];
        match given.into_iter().find(|(value, _)| value.is_some()) {
            Some((_, what)) => Err(Error::InvalidConfig {
                what: "config",
                problem: format!("the {} backend has no use for {what}", self.name()),
            }),
            None => Ok(()),
        }
    }

    /// Whether an instance starts from a copy of its files, because it can't stack layers. Its plan
    /// then has at most one layer, which holds everything, and so does what it saves.
    fn copies_layers(&self) -> bool {
        false
    }

    /// Starts a sandbox. On an error nothing is left behind.
    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>>;

    /// Removes what instances of dead owners left behind; returns how many there were.
    async fn sweep(&self) -> Result<usize>;
}

/// One running sandbox.
#[async_trait]
pub trait Instance: Send + Sync + Debug {
    /// Runs exactly once, whatever happens. May be called side by side.
    async fn execute(&self, permit: Permit, request: ExecRequest, io: ExecIo) -> Result<Outcome>;

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

    /// Lists one folder below the workspace.
    async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>>;

    /// Makes `into` (a folder of the host) equal to what the workspace holds above the plan's
    /// layers, or to all it holds if they were copied. Only what changed since the last call is
    /// written.
    async fn save(&self, into: &Path) -> Result<()>;

    /// The image that its files are changes of, if they are.
    fn base(&self) -> Option<&str> {
        None
    }

    /// A number that names the instance to the operating system, such as a process id.
    fn process_id(&self) -> Option<u32>;

    /// Whether it can still run something. One that can't never will again.
    fn is_alive(&self) -> bool;

    /// The rules of its way out, if it has one.
    fn network(&self) -> Option<&Rules> {
        None
    }

    /// Ends everything and frees everything. Calling it again is harmless.
    async fn destroy(&self) -> Result<()>;
}

/// Proof that an execution was decided on and that the decision was recorded. Only the lifecycle
/// can make one, so no backend can run anything without it.
#[derive(Debug)]
pub struct Permit {
    pub(crate) execution: ExecutionId,
    pub(crate) decision: Decision,
    pub(crate) attempts: Arc<Attempts>,
}

impl Permit {
    pub fn execution(&self) -> &ExecutionId {
        &self.execution
    }

    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Where to tell what the execution asks of the world outside.
    pub fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }
}

/// The open ends of one execution.
pub struct ExecIo {
    /// Output as it comes. A slow reader slows the program down.
    pub events: Option<mpsc::Sender<Event>>,
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub commands: mpsc::UnboundedReceiver<ExecCommand>,
}

impl Debug for ExecIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecIo").finish_non_exhaustive()
    }
}

/// Something that happened during an execution.
#[derive(Clone, Debug)]
pub enum Event {
    Started,
    Stdout(Bytes),
    Stderr(Bytes),
}

/// Something to do to a running execution.
#[derive(Clone, Debug)]
pub enum ExecCommand {
    /// End the whole tree; the outcome carries this reason.
    Kill(KillReason),
    Signal(i32),
    Resize(TerminalSize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Folder,
    Link,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileEntry {
    /// Bytes that are not UTF-8 are shown as U+FFFD; `raw` has them all.
    pub name: String,
    #[serde(skip)]
    pub raw: Vec<u8>,
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
}
