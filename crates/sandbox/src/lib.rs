//! The lifecycle of sandboxed executions: plan, decide, run, record, answer. It is the same for
//! every backend; a backend only offers a place to run in.

pub mod backend;
pub mod config;
pub mod control;
mod error;
mod ids;
pub mod plan;
pub mod request;

pub use backend::{Backend, Event, Instance};
pub use config::{Limit, Limits, SessionConfig};
pub use control::{Control, ControlState, Controls, Strength};
pub use error::{Error, Result};
pub use ids::{AgentId, CheckpointName, ExecutionId, SessionId};
pub use plan::Plan;
pub use request::{ExecRequest, KillReason, Language, Outcome, Output, Usage};
