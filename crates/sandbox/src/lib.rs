//! The lifecycle of sandboxed executions: plan, decide, run, record, answer. It is the same for
//! every backend. Library users take the crate `brig`; this one is for backends.

#![warn(missing_docs)]

pub mod approvals;
mod attempts;
pub mod backend;
pub mod blocking;
pub mod config;
pub mod control;
mod denial;
mod directories;
pub mod env;
mod error;
mod execution;
mod finding;
mod governed;
mod host_programs;
mod ids;
mod lifecycle;
pub mod limits;
mod mounts;
mod named_file;
mod needs;
mod once;
mod outcome;
pub mod plan;
mod policy_files;
mod records;
mod report;
pub mod request;
mod sandbox;
mod session;
mod sessions;
mod shared;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod text;
pub mod tools;
mod wait;

pub use brig_tools::{
    Arguments, DuplicateTool, FunctionTool, InvalidToolName, Tool, ToolError, ToolName,
    ToolRegistry, ToolSpec,
};

pub use attempts::{Attempted, Attempts};
pub use backend::{
    Backend, BackendId, Capabilities, Event, InitialState, Instance, IntoBackend, Unavailable,
};
pub use config::{Limit, Limits, NetworkConfig, SessionConfig};
pub use control::{Control, ControlState, Controls, Strength};
pub use denial::Denial;
pub use directories::{config_dir, state_dir};
pub use error::{Error, Result};
pub use execution::{ExecSignal, Execution, ExecutionHandle, ExecutionInfo};
pub use finding::Finding;
pub use host_programs::HostPrograms;
pub use ids::{AgentId, CheckpointName, ExecutionId, SessionId};
pub use mounts::below::Location;
pub use mounts::check_mount;
pub use mounts::links::follow;
pub use mounts::python::{Python, is_installation};
pub use named_file::{open_named, read_named};
pub use outcome::{KillReason, Outcome, Output, Usage};
pub use plan::Plan;
pub use policy_files::{LoadedPolicies, PolicyFiles, read_policy};
pub use report::{Interrupted, Report};
pub use request::{Cancelled, Language, Request, TerminalSize, TraceParent, Work};
pub use sandbox::{Sandbox, SandboxBuilder, SessionDetails, SessionInfo};
pub use session::{Checkpoint, Session, Upload};
pub use sessions::{Sessions, StateProblem};
pub use status::{ExecutionStatus, SessionStatus};
pub use wait::on_wait;
