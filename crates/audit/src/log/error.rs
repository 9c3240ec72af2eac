use std::io;
use std::path::{Path, PathBuf};

use brig_reason::ReasonCode;

use crate::RecordError;
use crate::canonical::NotCanonical;
use crate::note::NoteError;

/// Why a log cannot be opened, written or read. Nothing is recorded, so nothing may happen.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file of the log cannot be read or written: no permission, no space, or a failing disk.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// A verb, such as `read` or `sync`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A record is not what was written. Nothing is written to such a log.
    #[error("the log is damaged at record {seq}: {problem}")]
    Damaged {
        /// The number of the first such record.
        seq: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Records at the end are missing that the log's own head covers.
    #[error("the log ends after {found} records, but its head covers {expected}")]
    Truncated {
        /// How many records there are.
        found: u64,
        /// How many records the head covers.
        expected: u64,
    },
    /// The file `head` is missing, cannot be parsed, or does not match the records.
    #[error("the head of the log is missing or wrong: {0}")]
    Head(String),
    /// The key is missing, readable by others, or not the key of this log.
    #[error("the key `{}` cannot be used: {problem}", path.display())]
    Key {
        /// The file of the key.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The record of a new key is in the log, so it is the key from now on. Its file is put in place by the next process
    /// that writes to the log.
    #[error("the key is replaced, but not all of its files are in place yet: {0}")]
    Rotated(Box<LogError>),
    /// The lock was not free for 10 seconds. Trying again may succeed.
    #[error("another process has locked the log for too long")]
    Busy,
    /// The files on disk are no longer those that were opened.
    #[error("the log was moved or replaced while it was in use")]
    Replaced,
    /// An earlier write of this process failed, so it is not known what is on disk. Contains that error. A
    /// new process can continue the log.
    #[error("a write was lost before, so nothing more is written: {0}")]
    Broken(String),
    /// The record, with this length in bytes, does not fit into a line of 1 MiB.
    #[error("the record is too long: {0} bytes")]
    TooLong(usize),
    /// The record cannot be written as canonical JSON.
    #[error(transparent)]
    Canonical(#[from] NotCanonical),
    /// A key or a signed note is malformed, or a signature is not valid.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// There is no record with this number: it was pruned, or no signed head covers it yet, or it was never written.
    #[error("there is no record {0}")]
    NoRecord(u64),
    /// The directory contains neither records nor a head.
    #[error("there is no log in `{}`", .0.display())]
    NoLog(PathBuf),
    /// A proof cannot be made, or does not prove what it claims.
    #[error("the proof is wrong: {0}")]
    Proof(&'static str),
}

/// The result of an operation on a log.
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
    pub fn code(&self) -> ReasonCode {
        match self {
            Self::Io { .. } => ReasonCode::AuditIo,
            Self::Damaged { .. } => ReasonCode::AuditDamaged,
            Self::Truncated { .. } => ReasonCode::AuditTruncated,
            Self::Head(_) | Self::Note(_) => ReasonCode::AuditHead,
            Self::Key { .. } => ReasonCode::AuditKey,
            Self::Rotated(_) => ReasonCode::OperationIncomplete,
            Self::Busy => ReasonCode::AuditBusy,
            Self::Replaced => ReasonCode::AuditReplaced,
            Self::Broken(_) => ReasonCode::AuditBroken,
            Self::TooLong(_) | Self::Canonical(_) => ReasonCode::AuditRecord,
            Self::NoRecord(_) => ReasonCode::AuditNoRecord,
            Self::NoLog(_) => ReasonCode::AuditNoLog,
            Self::Proof(_) => ReasonCode::AuditProof,
        }
    }
}

impl LogError {
    /// What to do next, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { path, source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free disk space".into()
                }
                io::ErrorKind::FileTooLarge => "raise the limit on the size of files: ulimit -f".into(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    format!("make `{}` writable for this user", path.display())
                }
                _ if is_too_many(source) => "raise the limit on open files: ulimit -n 1024".into(),
                _ => return None,
            },
            Self::Damaged { .. } | Self::Truncated { .. } | Self::Head(_) => {
                "`brig audit verify` shows what is wrong; to go on with a new log, move the directory of this one away"
                    .into()
            }
            Self::Key { path, .. } => format!(
                "if it is the key of this log: chown it to this user and chmod 600 {}",
                path.display()
            ),
            Self::Busy | Self::Replaced | Self::Broken(_) => "try again".into(),
            _ => return None,
        })
    }
}

/// Descriptors, of the process or of the machine.
fn is_too_many(error: &io::Error) -> bool {
    let number = error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error);
    matches!(
        number,
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    )
}

impl From<LogError> for RecordError {
    fn from(error: LogError) -> Self {
        Self::new(error.to_string()).with_hint(error.hint())
    }
}
