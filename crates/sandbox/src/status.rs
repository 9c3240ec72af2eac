//! The states that a session and an execution go through.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// Its instance is being started.
    Provisioning,
    Ready,
    /// At least one execution is under way.
    Executing,
    Destroying,
    /// Gone, or never there.
    Destroyed,
    /// Its instance could not be started or was lost. The next execution tries again.
    Failed,
}

impl SessionStatus {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionStatus {
    /// Decided on or waiting for its instance.
    Pending,
    Running,
    /// Exit code 0, and not ended by Brig.
    Completed,
    Cancelled,
    Failed,
}

impl ExecutionStatus {
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
