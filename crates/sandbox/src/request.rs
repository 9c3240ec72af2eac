//! What one execution asks for, and what comes out of it.

use std::time::Duration;

use serde::Serialize;

/// The interpreters that source code can be given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    Bash,
    Node,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// What to run. Built by the lifecycle after the decision; see [`crate::backend::Permit`].
#[derive(Clone, Debug)]
pub struct ExecRequest {
    pub work: Work,
    /// Already filtered.
    pub env: Vec<(String, String)>,
    /// Inside the sandbox; relative to the workspace.
    pub cwd: Option<String>,
    /// A pseudo-terminal in place of pipes.
    pub terminal: Option<TerminalSize>,
    /// Whether standard input is connected. Otherwise it reads as empty.
    pub stdin: bool,
}

#[derive(Clone, Debug)]
pub enum Work {
    Code {
        language: Language,
        source: Vec<u8>,
        args: Vec<String>,
    },
    Command(Vec<String>),
}

/// Why Brig ended an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum KillReason {
    Timeout {
        limit_ms: u64,
    },
    Memory {
        limit_bytes: u64,
        peak_bytes: u64,
    },
    Processes {
        limit: u32,
    },
    Output {
        limit_bytes: u64,
    },
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
            KillReason::Output { .. } => "output",
            KillReason::Cancelled => "cancelled",
            KillReason::Destroyed => "destroyed",
        }
    }
}

/// One captured stream: the first bytes of it, and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub bytes: Vec<u8>,
    pub total: u64,
}

impl Output {
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub cpu: Duration,
    pub peak_memory_bytes: u64,
}

/// What a backend reports about one finished execution.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The program's own exit code; 128 + signal if a signal ended it.
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub stdout: Output,
    pub stderr: Output,
    pub duration: Duration,
    pub killed: Option<KillReason>,
    pub usage: Usage,
}
