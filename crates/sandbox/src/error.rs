use crate::{Control, Report};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong before or beside the program itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "invalid {label} `{given}`: must be 1 to 128 of a-z A-Z 0-9 _ . -, and start with a letter or digit"
    )]
    InvalidName { label: &'static str, given: String },
    #[error("invalid {what}: {problem}")]
    InvalidConfig { what: &'static str, problem: String },
    #[error("mount `{path}` is refused: {problem}")]
    MountRefused { path: String, problem: String },
    #[error("{}", unenforceable(.0))]
    Unenforceable(Vec<Unmet>),
    #[error("denied by policy: {}", .0.decision.reason)]
    Denied(Box<Report>),
    #[error("no session `{session}` of agent `{agent}`")]
    NoSession { agent: String, session: String },
    #[error("session `{session}` exists already")]
    SessionExists { session: String },
    #[error("session `{session}` is busy: {problem}")]
    SessionBusy { session: String, problem: String },
    #[error("no execution `{0}`")]
    NoExecution(String),
    #[error("no checkpoint `{0}`")]
    NoCheckpoint(String),
    #[error("checkpoint `{name}` exists already")]
    CheckpointExists { name: String },
    #[error("checkpoint `{name}` was changed after it was saved: {problem}")]
    CheckpointTampered { name: String, problem: String },
    #[error("no interpreter for {language}: {problem}")]
    NoInterpreter {
        language: &'static str,
        problem: String,
    },
    #[error("cannot run `{program}`: {problem}")]
    CannotRun {
        program: String,
        exit_code: i32,
        problem: String,
    },
    #[error("file `{path}`: {problem}")]
    File { path: String, problem: String },
    #[error("the {backend} backend cannot be used here: {problem}")]
    Unavailable {
        backend: &'static str,
        problem: String,
    },
    /// A service that runs sandboxes said no, or nothing at all.
    #[error("{step}: {problem}")]
    Engine {
        code: &'static str,
        step: String,
        problem: String,
        hint: Option<String>,
    },
    #[error("the sandbox could not be set up: {step}: {problem}")]
    Setup { step: String, problem: String },
    #[error("the sandbox was lost: {0}")]
    InstanceLost(String),
    #[error("the guest broke the protocol: {0}")]
    Protocol(String),
    #[error(transparent)]
    Record(#[from] brig_audit::RecordError),
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
}

/// A control that was asked for and can't be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub control: Control,
    pub problem: String,
    pub mend: Option<String>,
}

impl Error {
    /// A stable code: the same in errors, receipts and JSON output.
    pub fn code(&self) -> &'static str {
        match self {
            Error::InvalidName { .. } => "input.name",
            Error::InvalidConfig { .. } => "input.config",
            Error::MountRefused { .. } => "input.mount",
            Error::Unenforceable(_) => "policy.unenforceable",
            Error::Denied(_) => "policy.denied",
            Error::NoSession { .. } => "session.unknown",
            Error::SessionExists { .. } => "session.exists",
            Error::SessionBusy { .. } => "session.busy",
            Error::NoExecution(_) => "execution.unknown",
            Error::NoCheckpoint(_) => "checkpoint.unknown",
            Error::CheckpointExists { .. } => "checkpoint.exists",
            Error::CheckpointTampered { .. } => "checkpoint.tampered",
            Error::NoInterpreter { .. } => "run.no-interpreter",
            Error::CannotRun { .. } => "run.cannot-start",
            Error::File { .. } => "file.failed",
            Error::Unavailable { .. } => "backend.unavailable",
            Error::Engine { code, .. } => code,
            Error::Setup { .. } => "backend.setup",
            Error::InstanceLost(_) => "backend.lost",
            Error::Protocol(_) => "backend.protocol",
            Error::Record(_) => "audit.unwritable",
            Error::Io { .. } => "io.failed",
        }
    }

    /// What to do next, apart from the error itself.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Unenforceable(unmet) => {
                let mends: Vec<&str> = unmet.iter().filter_map(|u| u.mend.as_deref()).collect();
                let names: Vec<&str> = unmet.iter().map(|u| u.control.name()).collect();
                let waive = format!("give it up knowingly: --waive {}", names.join(","));
                Some(if mends.is_empty() {
                    waive
                } else {
                    format!("{}; or {waive}", mends.join("; "))
                })
            }
            Error::Engine { hint, .. } => hint.clone(),
            Error::Record(_) => Some(
                "make room for it, or let it be written; brig audit verify says what is wrong with \
                 a log, and one that cannot be mended can be moved away"
                    .into(),
            ),
            _ => None,
        }
    }

    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Error::Io {
            what: what.into(),
            source: source.into(),
        }
    }
}

fn unenforceable(unmet: &[Unmet]) -> String {
    let parts: Vec<String> = unmet
        .iter()
        .map(|u| format!("{} ({})", u.control.name(), u.problem))
        .collect();
    format!("this backend cannot hold: {}", parts.join(", "))
}
