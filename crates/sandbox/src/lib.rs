//! The lifecycle of sandboxed executions: plan, decide, run, record, answer. It is the same for
//! every backend; a backend only offers a place to run in.

mod account;
mod attempts;
pub mod backend;
pub mod blocking;
pub mod commands;
pub mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod control;
pub mod doors;
pub mod env;
mod error;
mod execution;
mod finding;
mod governed;
mod ids;
pub mod layers;
pub mod limits;
pub mod link;
mod mounts;
mod needs;
pub mod network;
mod once;
pub mod plan;
mod report;
pub mod request;
mod sandbox;
mod session;
mod shared;
mod status;
mod store;
#[cfg(test)]
mod tests;

pub use attempts::{Attempted, Attempts};
pub use backend::{Backend, Event, Instance};
pub use config::{Limit, Limits, NetworkConfig, SessionConfig};
pub use control::{Control, ControlState, Controls, Strength};
pub use error::{Error, Result};
pub use execution::{ExecutionInfo, Request, Running};
pub use finding::Finding;
pub use ids::{AgentId, CheckpointName, ExecutionId, SessionId};
pub use plan::Plan;
pub use report::Report;
pub use request::{ExecRequest, KillReason, Language, Outcome, Output, Usage};
pub use sandbox::{Sandbox, SandboxBuilder, SessionDetails, SessionInfo};
pub use session::{Checkpoint, Session};
pub use status::{ExecutionStatus, SessionStatus};
