//! Runs code of AI agents in a sandbox, under a policy, with a record of everything.
//!
//! ```
//! use brig::{Error, Language, Native, Sandbox};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! let sandbox = Sandbox::builder(Native::new()).build()?;
//! let session = sandbox.create_session(&"demo".parse()?, None, Default::default()).await?;
//! let report = session.execute_code(Language::Python, "print(6 * 7)").await?;
//! assert_eq!(report.outcome.stdout.bytes, b"42\n");
//! session.destroy().await
//! # }
//! ```
//!
//! A [`Sandbox`] has one backend. [`Sandbox::run_once`] runs one [`Request`] in a sandbox of its own; a
//! [`Session`] keeps its files between executions. An execution that ran has a [`Report`], whatever
//! its exit code. One that a policy denied is [`Error::Denied`], with a [`Denial`].
//!
//! Everything is async on tokio. The module [`blocking`] has the same types for callers without a
//! runtime.
//!
//! # Features
//!
//! - `native` (default): `Native`, sandboxes of Linux namespaces, without a daemon.
//! - `docker`: `Docker`, sandboxes in containers.
//! - `azure`: `Azure`, sandboxes of Azure Container Apps.

#![warn(missing_docs)]

#[cfg(feature = "azure")]
pub use brig_aca::{AcaBackend as Azure, Options as AzureOptions};
#[cfg(feature = "docker")]
pub use brig_docker::{DockerBackend as Docker, Options as DockerOptions};
#[cfg(feature = "native")]
pub use brig_native::NativeBackend as Native;

pub use brig_sandbox::blocking;
pub use brig_sandbox::{
    AgentId, Attempted, Checkpoint, CheckpointName, Control, ControlState, Denial, Error, Event,
    ExecutionHandle, ExecutionId, ExecutionInfo, ExecutionStatus, IntoBackend, KillReason,
    Language, Limit, Limits, NetworkConfig, Outcome, Output, Report, Request, Result, Sandbox,
    SandboxBuilder, Session, SessionConfig, SessionDetails, SessionId, SessionInfo, SessionStatus,
    Strength, TerminalSize, Usage, Work,
};

/// The parts of a session's config.
pub mod config {
    pub use brig_sandbox::config::{MIB, MountSpec, OutputOverflow};
}

/// Files in a session's workspace.
pub mod files {
    pub use brig_sandbox::backend::{FileEntry, FileKind};
}

/// Rules about hosts, for [`NetworkConfig`].
pub mod network {
    pub use brig_egress::{Layer, LayerKind, Rule};
}

/// Functions of the host that code in a sandbox may call: [`SandboxBuilder::tools`].
pub mod tools {
    pub use brig_sandbox::{
        Arguments, DuplicateTool, FunctionTool, InvalidToolName, Tool, ToolError, ToolName,
        ToolRegistry, ToolSpec,
    };
}

/// Who answers where a policy requires an approval: [`SandboxBuilder::approve_with`].
pub mod approvals {
    pub use brig_audit::{Approval, ApprovalOutcome};
    pub use brig_sandbox::approvals::{
        ApprovalAnswer, ApprovalQueue, ApprovalRequest, Approver, QueueError, Subject, SubjectKind,
    };
}

/// Policies, and how to decide without one.
pub mod policy {
    pub use brig_policy::{
        Action, AllowAll, Compat, Decider, Decision, Document, PolicySet, Request as Question,
    };
}

/// Records, and where to keep them.
pub mod audit {
    pub use brig_audit::{Log, MemoryLog, Record, RecordError, Recorder};
}

/// The examples of the README and of the guide are compiled and run.
#[cfg(all(doctest, feature = "native"))]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guides/library.md")]
#[derive(Debug)]
pub struct Guides;
