//! What comes out of one execution.

use std::time::Duration;

use brig_reason::ReasonCode;
use serde::Serialize;

use crate::ExecutionStatus;

/// Why Brig ended an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum KillReason {
    /// It ran too long.
    Timeout {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// It used too much memory.
    Memory {
        /// The limit.
        limit_bytes: u64,
        /// What was used.
        peak_bytes: u64,
    },
    /// It started too many processes.
    Processes {
        /// The limit.
        limit: u32,
    },
    /// It wrote too much to the disk. Only where that is watched: elsewhere the disk is full.
    Disk {
        /// The limit.
        limit_bytes: u64,
    },
    /// It wrote too much.
    Output {
        /// The limit of the stream.
        limit_bytes: u64,
    },
    /// What it uses was not reported for so long that its limits could not be enforced. Only where they are watched
    /// from inside the sandbox.
    Unobserved {
        /// For how long, in milliseconds.
        silent_ms: u64,
    },
    /// The caller cancelled it.
    Cancelled,
    /// The whole instance went away: destroyed by another client, or lost.
    Destroyed,
}

impl KillReason {
    /// The stable name, as in results and receipts.
    pub fn name(&self) -> &'static str {
        match self {
            KillReason::Timeout { .. } => "timeout",
            KillReason::Memory { .. } => "memory",
            KillReason::Processes { .. } => "processes",
            KillReason::Disk { .. } => "disk",
            KillReason::Output { .. } => "output",
            KillReason::Unobserved { .. } => "unobserved",
            KillReason::Cancelled => "cancelled",
            KillReason::Destroyed => "destroyed",
        }
    }

    /// The reason code in the receipt.
    pub(crate) fn code(&self) -> ReasonCode {
        match self {
            KillReason::Timeout { .. } => ReasonCode::RunTimeout,
            KillReason::Memory { .. } => ReasonCode::RunMemory,
            KillReason::Processes { .. } => ReasonCode::RunProcesses,
            KillReason::Disk { .. } => ReasonCode::RunDisk,
            KillReason::Output { .. } => ReasonCode::RunOutput,
            KillReason::Unobserved { .. } => ReasonCode::RunUnobserved,
            KillReason::Cancelled => ReasonCode::RunCancelled,
            KillReason::Destroyed => ReasonCode::RunDestroyed,
        }
    }
}

/// One captured stream: its first bytes, and how many there were in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The bytes that were kept.
    pub bytes: Vec<u8>,
    /// How many bytes were written.
    pub total: u64,
}

impl Output {
    /// Whether some bytes were not kept.
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}

/// What an execution used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// CPU time of all its processes.
    pub cpu: Duration,
    /// The most memory at a time.
    pub peak_memory_bytes: u64,
}

/// What a backend reports about one finished execution.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The program's own exit code; 128 + signal if a signal ended it.
    pub exit_code: i32,
    /// The signal that ended the program, if one did.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Output,
    /// What it wrote to standard error.
    pub stderr: Output,
    /// From start to end.
    pub duration: Duration,
    /// Why Brig ended it, if it did.
    pub killed: Option<KillReason>,
    /// What it used.
    pub usage: Usage,
    /// Why the sandbox was lost before the end, if it was. Then the rest is what was known until then.
    pub lost: Option<String>,
}

impl Outcome {
    /// Of a program that exited by itself and wrote nothing. A backend fills in the rest.
    pub fn exited(exit_code: i32) -> Self {
        Self {
            exit_code,
            signal: None,
            stdout: Output::default(),
            stderr: Output::default(),
            duration: Duration::ZERO,
            killed: None,
            usage: Usage::default(),
            lost: None,
        }
    }

    /// Of an execution whose instance can't report any more.
    pub(crate) fn killed(reason: KillReason, duration: Duration) -> Self {
        Self {
            signal: Some(9),
            duration,
            killed: Some(reason),
            ..Self::exited(128 + 9)
        }
    }

    /// Exit code 0, and not ended by Brig.
    pub fn success(&self) -> bool {
        self.exit_code == 0 && self.killed.is_none()
    }

    pub(crate) fn status(&self) -> ExecutionStatus {
        match &self.killed {
            None if self.exit_code == 0 => ExecutionStatus::Completed,
            Some(KillReason::Cancelled) => ExecutionStatus::Cancelled,
            _ => ExecutionStatus::Failed,
        }
    }
}
