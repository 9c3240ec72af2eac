use jiff::Timestamp;
use serde::Serialize;

/// One fact worth keeping.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    pub at: Timestamp,
    pub agent: String,
    pub session: String,
    pub execution: Option<String>,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened. Never holds values of environment variables or credentials.
#[derive(Clone, Debug, Serialize)]
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
}

/// The record could not be kept, so what it describes must not happen.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the evidence could not be written: {0}")]
pub struct RecordError(pub String);

/// A place where records are kept. Returning `Ok` means the record will not be lost.
pub trait Recorder: Send + Sync + std::fmt::Debug {
    fn append(&self, record: Record) -> Result<(), RecordError>;
}
