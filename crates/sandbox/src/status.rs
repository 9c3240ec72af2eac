//! The states that a session and an execution go through.

use serde::Serialize;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SessionStatus {
    /// Its instance is being started.
    Provisioning,
    /// Nothing runs.
    Ready,
    /// At least one execution is under way.
    Executing,
    /// It is being destroyed.
    Destroying,
    /// Destroyed, or never created.
    Destroyed,
    /// Its instance could not be started or was lost. The next execution tries again.
    Failed,
}

impl SessionStatus {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            SessionStatus::Provisioning => "provisioning",
            SessionStatus::Ready => "ready",
            SessionStatus::Executing => "executing",
            SessionStatus::Destroying => "destroying",
            SessionStatus::Destroyed => "destroyed",
            SessionStatus::Failed => "failed",
        }
    }
}

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExecutionStatus {
    /// Being decided on, or waiting for its instance.
    Pending,
    /// The program runs.
    Running,
    /// Exit code 0, and not ended by Brig.
    Completed,
    /// The caller cancelled it.
    Cancelled,
    /// Another exit code, or ended by Brig.
    Failed,
}

impl ExecutionStatus {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ExecutionStatus::Pending => "pending",
            ExecutionStatus::Running => "running",
            ExecutionStatus::Completed => "completed",
            ExecutionStatus::Cancelled => "cancelled",
            ExecutionStatus::Failed => "failed",
        }
    }
}
