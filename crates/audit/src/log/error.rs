use std::io;
use std::path::{Path, PathBuf};

use crate::RecordError;
use crate::canonical::NotCanonical;
use crate::note::NoteError;

/// Why a log cannot be opened, written or read. Nothing is recorded, so nothing may happen.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the log is damaged at record {seq}: {problem}")]
    Damaged { seq: u64, problem: String },
    #[error("the log ends after {found} records, but its head speaks of {expected}")]
    Truncated { found: u64, expected: u64 },
    #[error("the head of the log is missing or wrong: {0}")]
    Head(String),
    #[error("the key `{}` cannot be used: {problem}", path.display())]
    Key { path: PathBuf, problem: String },
    #[error("another process has held the log for too long")]
    Busy,
    #[error("the log was moved or replaced while it was in use")]
    Replaced,
    #[error("a write was lost before, so nothing more is written: {0}")]
    Broken(String),
    #[error("the record is too long: {0} bytes")]
    TooLong(usize),
    #[error(transparent)]
    Canonical(#[from] NotCanonical),
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("there is no record {0}")]
    NoRecord(u64),
    #[error("there is no log in `{}`", .0.display())]
    NoLog(PathBuf),
    #[error("the proof is wrong: {0}")]
    Proof(&'static str),
}

pub type Result<T, E = LogError> = std::result::Result<T, E>;

impl LogError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    pub(crate) fn damaged(seq: u64, problem: impl Into<String>) -> Self {
        Self::Damaged {
            seq,
            problem: problem.into(),
        }
    }

    /// The stable reason code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "audit.io",
            Self::Damaged { .. } => "audit.damaged",
            Self::Truncated { .. } => "audit.truncated",
            Self::Head(_) | Self::Note(_) => "audit.head",
            Self::Key { .. } => "audit.key",
            Self::Busy => "audit.busy",
            Self::Replaced => "audit.replaced",
            Self::Broken(_) => "audit.broken",
            Self::TooLong(_) | Self::Canonical(_) => "audit.record",
            Self::NoRecord(_) => "audit.no-record",
            Self::NoLog(_) => "audit.no-log",
            Self::Proof(_) => "audit.proof",
        }
    }
}

impl From<LogError> for RecordError {
    fn from(error: LogError) -> Self {
        Self(error.to_string())
    }
}
