use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::pending::Pending;
use crate::receipt::Receipt;

/// One fact worth keeping.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    pub at: Timestamp,
    pub agent: String,
    pub session: String,
    pub execution: Option<String>,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. Never holds values of environment variables or credentials.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    SessionCreated {
        backend: String,
        waived: Vec<String>,
    },
    SessionRestored {
        checkpoint: String,
        digest: String,
    },
    SessionForked {
        from: String,
        checkpoint: String,
    },
    SessionDestroyed,
    CheckpointSaved {
        name: String,
        digest: String,
    },
    CheckpointDeleted {
        name: String,
    },
    Decided {
        allowed: bool,
        code: String,
        rule: Option<String>,
        reason: String,
    },
    ExecutionStarted {
        action: String,
    },
    ExecutionFinished {
        exit_code: Option<i32>,
        kill_reason: Option<String>,
    },
    ExecutionFailed {
        code: String,
        message: String,
    },
    /// All about one execution, whatever became of it.
    Receipt(Box<Receipt>),
    /// A connection, or a name to look up, that the sandbox asked for.
    EgressDecided(Egress),
    /// A connection that was allowed has ended.
    EgressClosed(Egress),
    /// A program that the sandbox tried to start.
    CommandAttempted(Command),
    /// A call of a tool outside of the sandbox.
    ToolCalled(Tool),
    /// A control that the policy asks for and the operator does without.
    ControlWaived {
        control: String,
    },
    AllowlistChanged {
        layer: String,
        added: Vec<String>,
        removed: Vec<String>,
    },
    /// An agent was run without a sandbox.
    Unsandboxed {
        /// Who said so: the flag, the alias, the agent file or the user.
        by: String,
        program: String,
        command_digest: String,
    },
    /// Records like one that was kept, and that were not kept themselves because there were too
    /// many of them.
    Suppressed {
        /// The `event` of what was left out.
        of: String,
        allowed: bool,
        /// What they had in common. Nothing if they had little.
        subject: Option<String>,
        count: u64,
    },
    /// The first record of a log.
    LogCreated {
        origin: String,
        key: String,
    },
    /// The new key speaks from the next head on. Each key signs for the other.
    KeyRotated {
        from: String,
        to: String,
        signed_by_from: String,
        signed_by_to: String,
    },
    /// What a crash left behind an unfinished record was cut off.
    LogRepaired {
        bytes: u64,
        digest: String,
    },
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Egress {
    pub allowed: bool,
    pub code: String,
    pub rule: Option<String>,
    /// Who made the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    pub protocol: String,
    pub host: String,
    /// 0 for the lookup of a name.
    pub port: u16,
    /// Known when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
}

/// What went over a connection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Carried {
    /// Bytes out of the sandbox.
    pub sent: u64,
    /// Bytes into the sandbox.
    pub received: u64,
    pub milliseconds: u64,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Command {
    pub allowed: bool,
    pub code: String,
    pub rule: Option<String>,
    /// As it was asked for.
    pub program: String,
    /// What that turned out to be; nothing if there is no such file.
    #[serde(default)]
    pub path: Option<String>,
    pub arguments: Vec<String>,
    /// The program that asked.
    #[serde(default)]
    pub parent: Option<String>,
    /// Where in the program it was asked for, if the interpreter told.
    pub caller: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tool {
    pub allowed: bool,
    pub code: String,
    pub rule: Option<String>,
    pub tool: String,
    pub arguments_digest: Option<String>,
    pub success: Option<bool>,
}

/// The record could not be kept, so what it describes must not happen.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the evidence could not be written: {0}")]
pub struct RecordError(pub String);

/// A place where records are kept.
///
/// Calls are kept in order: when a record is safe, so is everything that was given before it.
pub trait Recorder: Send + Sync + std::fmt::Debug {
    /// Keeps a record. `Ok` means that it will not be lost, even if the machine stops.
    fn append(&self, record: Record) -> Result<(), RecordError>;

    /// Begins to keep records. What they describe may happen once the answer is there, so that
    /// other work can be done until then.
    fn begin(&self, records: Vec<Record>) -> Pending {
        Pending::ready(
            records
                .into_iter()
                .try_for_each(|record| self.append(record)),
        )
    }

    /// Keeps a record of something that happens within an execution. It outlives this process at
    /// once, and the machine with whatever is kept next.
    fn note(&self, record: Record) -> Result<(), RecordError> {
        self.append(record)
    }

    /// Begins to keep the records that end an execution. Its answer may be given once this has
    /// answered.
    fn conclude(&self, records: Vec<Record>) -> Pending {
        self.begin(records)
    }
}
