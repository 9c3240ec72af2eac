use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::pending::Pending;
use crate::receipt::Receipt;

/// One fact worth keeping.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// When it was recorded, by the clock of this machine.
    pub at: Timestamp,
    /// The agent. Empty in records of the log about itself, and of the lists of the user.
    pub agent: String,
    /// The session. Empty where the agent is.
    pub session: String,
    /// The execution. `None` for what belongs to a whole session, or to none.
    pub execution: Option<String>,
    /// What happened. Its fields are next to the others in JSON.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. Never contains values of environment variables or credentials.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A session was created.
    SessionCreated {
        /// The backend that runs it, such as `native`.
        backend: String,
        /// The controls that the policy requires and the operator has waived.
        waived: Vec<String>,
    },
    /// The files of a session are put back to a checkpoint.
    SessionRestored {
        /// The name of the checkpoint.
        checkpoint: String,
        /// The digest of its files.
        digest: String,
    },
    /// This session was created from a checkpoint of another one.
    SessionForked {
        /// The other session.
        from: String,
        /// The name of the checkpoint.
        checkpoint: String,
    },
    /// A session is to be destroyed. This is on disk before anything of it is touched.
    SessionDestroyRequested,
    /// A session was destroyed.
    SessionDestroyed,
    /// What the record before it about this session says could not be done.
    OperationFailed {
        /// The `event` of that record.
        of: String,
        /// The stable reason code of the error.
        code: String,
        /// The text of the error.
        message: String,
    },
    /// A checkpoint of the session's files was saved.
    CheckpointSaved {
        /// The name of the checkpoint.
        name: String,
        /// The digest of its files.
        digest: String,
    },
    /// A checkpoint was deleted.
    CheckpointDeleted {
        /// The name of the checkpoint.
        name: String,
    },
    /// The policy decided on an execution.
    Decided {
        /// Whether it may start.
        allowed: bool,
        /// The stable reason code.
        code: String,
        /// The rule that decided. `None` if none applied.
        rule: Option<String>,
        /// The reason in words.
        reason: String,
    },
    /// An execution starts. This is on disk before any code runs.
    ExecutionStarted {
        /// `execute` for source code, `run` for a command.
        action: String,
    },
    /// An execution ran to its end, or was ended.
    ExecutionFinished {
        /// The exit code of the program; 128 + signal if a signal ended it.
        exit_code: Option<i32>,
        /// Why Brig ended it, as in [`Receipt::kill_reason`]. `None` if it did not.
        kill_reason: Option<String>,
    },
    /// An execution could not be started, or its result could not be obtained.
    ExecutionFailed {
        /// The stable reason code of the error.
        code: String,
        /// The text of the error, without values of environment variables.
        message: String,
    },
    /// What an execution changed could not be saved: the files are as before it.
    FilesNotSaved {
        /// The stable reason code of the error.
        code: String,
        /// The text of the error.
        message: String,
    },
    /// All about one execution, whatever became of it.
    Receipt(Box<Receipt>),
    /// A connection, or a name to look up, that the sandbox asked for.
    EgressDecided(Egress),
    /// A connection that was allowed has ended.
    EgressClosed(Egress),
    /// All that was asked for alike during an execution, where not each had a record of its own.
    EgressTotal(Egress),
    /// A program that the sandbox tried to start.
    CommandAttempted(Command),
    /// All attempts at a program that were alike, where not each had a record of its own.
    CommandTotal(Command),
    /// A call of a tool outside of the sandbox.
    ToolCalled(Tool),
    /// Somebody is asked to approve an execution or a call of a tool.
    ApprovalRequested(ApprovalRequested),
    /// What came of it.
    ApprovalAnswered(Approval),
    /// A control that the policy asks for and the operator does without.
    ControlWaived {
        /// The name of the control.
        control: String,
    },
    /// Rules were added to or removed from a list.
    AllowlistChanged {
        /// `session`; or `user`, `user-block` or `trusted-agents` for the lists of the user.
        layer: String,
        /// The new entries. In the layer `session`, a `!` marks a rule that denies.
        added: Vec<String>,
        /// The entries that are no longer there.
        removed: Vec<String>,
    },
    /// An agent was run without a sandbox.
    Unsandboxed {
        /// What set it: the flag, the alias, the agent file or the user.
        by: String,
        /// The first word of the command.
        program: String,
        /// The digest of the whole command, as [`command_digest`](crate::receipt::command_digest) returns it.
        command_digest: String,
    },
    /// Records like one that was kept, and that were not kept themselves because there were too
    /// many of them.
    Suppressed {
        /// The `event` of what was left out.
        of: String,
        /// Whether they were allowed. Never mixed.
        allowed: bool,
        /// What they had in common. Nothing if they had little.
        subject: Option<String>,
        /// How many were left out since the last such record with the same subject.
        count: u64,
    },
    /// The first record of a log.
    LogCreated {
        /// The name of the log, which its heads and keys have too.
        origin: String,
        /// The public key that signs the first heads.
        key: String,
    },
    /// The new key signs from the next head on. Each key signs the other.
    KeyRotated {
        /// The old public key.
        from: String,
        /// The new public key.
        to: String,
        /// The old key's signature over both keys and the number of this record, in base64.
        signed_by_from: String,
        /// The new key's signature over the same, in base64.
        signed_by_to: String,
    },
    /// The first records of the log were removed; its heads still speak for them.
    LogPruned {
        /// All records before this number were removed.
        records: u64,
        /// The root of the tree over them.
        root: String,
    },
    /// The end of the log was cut off: an incomplete write, or lines without a valid tag.
    LogRepaired {
        /// How much was removed.
        bytes: u64,
        /// The SHA-256 of what was removed, of at most its first MiB.
        digest: String,
    },
}

/// A network attempt, or the total of equal ones.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Egress {
    /// Whether the gateway allowed it.
    pub allowed: bool,
    /// The stable reason code. At the end of a connection, the reason for the end if neither side closed it.
    pub code: String,
    /// The rule that decided, or for a denial the closest one.
    pub rule: Option<String>,
    /// Who made the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// `http`, `connect`, `socks5`, `dns`, `tcp` or `udp`; `any` if different ports are counted together.
    pub protocol: String,
    /// The requested name or address. `(other hosts)` if different hosts are counted together.
    pub host: String,
    /// 0 for the lookup of a name.
    pub port: u16,
    /// The address that was dialled, or that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What was tried, where host and port don't show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Any protocol could be spoken; nothing of it was looked at.
    #[serde(default, skip_serializing_if = "is_false")]
    pub raw: bool,
    /// Known when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
    /// How often, where this is the total of equal attempts. Their bytes are summed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// The number of equal attempts, and when they were made.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// The time of the first one.
    pub first: Timestamp,
    /// The time of the last one.
    pub last: Timestamp,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What went over a connection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Carried {
    /// Bytes out of the sandbox.
    pub sent: u64,
    /// Bytes into the sandbox.
    pub received: u64,
    /// How long it was open. In a total, the sum.
    pub milliseconds: u64,
}

/// An attempt to start a program, or the total of equal ones.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Command {
    /// Whether it was allowed to start.
    pub allowed: bool,
    /// The stable reason code.
    pub code: String,
    /// The rule that decided. `None` if none applied.
    pub rule: Option<String>,
    /// As it was asked for.
    pub program: String,
    /// What that turned out to be; nothing if there is no such file.
    #[serde(default)]
    pub path: Option<String>,
    /// The arguments, the program's own name first. Long ones are shortened.
    pub arguments: Vec<String>,
    /// The program that asked.
    #[serde(default)]
    pub parent: Option<String>,
    /// Where in the program it was requested, if the interpreter reported it.
    pub caller: Option<String>,
    /// What this is the total of, where different attempts had to be counted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How often, where this is the total of equal attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tool {
    /// Whether the call was made.
    pub allowed: bool,
    /// The stable reason code.
    pub code: String,
    /// The rule that decided. `None` if none applied.
    pub rule: Option<String>,
    /// The name of the tool.
    pub tool: String,
    /// The digest of the arguments, if the backend reports one.
    pub arguments_digest: Option<String>,
    /// Whether the tool succeeded. `None` if that is not known, or it was not called.
    pub success: Option<bool>,
    /// How long it took, if it was called. Without the wait for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
    /// The arguments as JSON, if the policy has them recorded: shortened, and without values of environment
    /// variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// What came of the approval that the policy requires for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// What somebody is asked to approve.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ApprovalRequested {
    /// The id of the request.
    pub request: String,
    /// `code`, `command` or `tool`.
    pub kind: String,
    /// The language, the program or the tool.
    pub name: String,
    /// The digest of the code, the command or the arguments.
    pub digest: String,
    /// The rule that requires it. `None` if it is the default action.
    pub rule: Option<String>,
    /// How long an answer is waited for.
    pub timeout_seconds: u64,
}

/// What came of a required approval.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Approval {
    /// The id of the request.
    pub request: String,
    /// Whether it was approved, and if not, why not.
    pub outcome: ApprovalOutcome,
    /// Who answered. `None` if nobody did.
    pub by: Option<String>,
    /// What they said about it.
    pub reason: Option<String>,
    /// How long it took.
    pub milliseconds: u64,
}

/// How a request for an approval ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalOutcome {
    /// Somebody approved.
    Approved,
    /// Somebody denied.
    Denied,
    /// Nobody answered in time.
    TimedOut,
    /// There was nobody to ask.
    Unattended,
    /// The execution ended first.
    Cancelled,
}

impl ApprovalOutcome {
    /// The stable name, as in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::TimedOut => "timed-out",
            Self::Unattended => "unattended",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The record could not be kept, so what it describes must not happen.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the audit record could not be written: {problem}")]
pub struct RecordError {
    problem: String,
    hint: Option<String>,
}

impl RecordError {
    /// Why it could not be kept.
    pub fn new(problem: impl Into<String>) -> Self {
        let (problem, hint) = (problem.into(), None);
        Self { problem, hint }
    }

    /// What to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// What to do next, if that is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

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
