use std::fmt;
use std::path::Path;

use brig_reason::ReasonCode;

use crate::escape;
use crate::log::LogError;

/// The first problem of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VerifyError {
    /// What is wrong.
    pub kind: VerifyErrorKind,
    /// The first record that is not as it should be.
    pub record: Option<u64>,
    /// Its file, and its line from 1.
    pub place: Option<(String, u64)>,
}

/// What is wrong with a log, at the record that [`VerifyError::record`] names or as a whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum VerifyErrorKind {
    /// The line is not what a log writes.
    NotARecord,
    /// Its hash does not match its contents.
    Changed,
    /// Another record is in its place: some were removed, moved or repeated.
    OutOfPlace(u64),
    /// It does not follow from the record before it: one of them was replaced.
    Unlinked,
    /// Its line ends in the middle, and others follow.
    Incomplete,
    /// No head covers it, and it was not written with the log's key.
    Added,
    /// The log ends before it, although a head covers this many records.
    Truncated(u64),
    /// The first records are not those that the given head signs.
    Replaced(u64),
    /// The record of earlier verifications.
    Verified,
    /// The summary of pruned records.
    Pruned(String),
    /// The log's own head.
    Head(String),
    /// The head that was kept elsewhere cannot be used. Contains the reason.
    GivenHead(String),
    /// The key is missing, malformed, or not a key of this log. Contains the reason.
    Key(String),
    /// There is no head, and at most the first record.
    Unfinished,
    /// A change of keys that is not signed by both.
    Rotation,
    /// The stored tree, which can be made again.
    Nodes,
    /// The check could not be done, because the log cannot be read. Contains the error.
    Unreadable(String),
}

impl VerifyError {
    pub(crate) fn of(kind: VerifyErrorKind) -> Self {
        Self {
            kind,
            record: None,
            place: None,
        }
    }

    pub(crate) fn at(record: u64, kind: VerifyErrorKind) -> Self {
        Self {
            record: Some(record),
            ..Self::of(kind)
        }
    }

    pub(crate) fn in_file(mut self, path: &Path, line: u64) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.place.get_or_insert((name.into_owned(), line));
        self
    }

    /// The stable reason code.
    pub fn code(&self) -> ReasonCode {
        match &self.kind {
            VerifyErrorKind::NotARecord => ReasonCode::AuditNotARecord,
            VerifyErrorKind::Changed => ReasonCode::AuditChanged,
            VerifyErrorKind::OutOfPlace(_) => ReasonCode::AuditOutOfPlace,
            VerifyErrorKind::Unlinked => ReasonCode::AuditUnlinked,
            VerifyErrorKind::Incomplete => ReasonCode::AuditIncomplete,
            VerifyErrorKind::Added => ReasonCode::AuditAdded,
            VerifyErrorKind::Truncated(_) => ReasonCode::AuditTruncated,
            VerifyErrorKind::Replaced(_) => ReasonCode::AuditReplaced,
            VerifyErrorKind::Head(_) | VerifyErrorKind::GivenHead(_) => ReasonCode::AuditHead,
            VerifyErrorKind::Key(_) => ReasonCode::AuditKey,
            VerifyErrorKind::Pruned(_) => ReasonCode::AuditPruned,
            VerifyErrorKind::Verified => ReasonCode::AuditVerified,
            VerifyErrorKind::Unfinished => ReasonCode::AuditUnfinished,
            VerifyErrorKind::Rotation => ReasonCode::AuditRotation,
            VerifyErrorKind::Nodes => ReasonCode::AuditNodes,
            VerifyErrorKind::Unreadable(_) => ReasonCode::AuditIo,
        }
    }
}

impl From<LogError> for VerifyError {
    fn from(error: LogError) -> Self {
        Self::of(match error {
            LogError::Key { .. } => VerifyErrorKind::Key(error.to_string()),
            _ => VerifyErrorKind::Unreadable(error.to_string()),
        })
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(record) = self.record {
            write!(f, "record {record}")?;
            if let Some((file, line)) = &self.place {
                write!(f, " ({}, line {line})", escape::line(file))?;
            }
            f.write_str(": ")?;
        }
        match &self.kind {
            VerifyErrorKind::NotARecord => f.write_str("the line is not a record"),
            VerifyErrorKind::Changed => f.write_str("it was changed: its hash does not match its contents"),
            VerifyErrorKind::OutOfPlace(found) => write!(
                f,
                "record {found} is in its place: records were removed, moved or repeated"
            ),
            VerifyErrorKind::Unlinked => f.write_str(
                "it does not follow from the record before it: one of them was replaced",
            ),
            VerifyErrorKind::Incomplete => f.write_str("its line is incomplete, and others follow"),
            VerifyErrorKind::Added => f.write_str(
                "it was not written with the log's key: it was added by someone else, or a writer \
                 was killed; the next writer removes it",
            ),
            VerifyErrorKind::Truncated(expected) => write!(
                f,
                "it is missing: the log ends before it, but a head covers {expected} records"
            ),
            VerifyErrorKind::Replaced(size) => write!(
                f,
                "the first {size} records do not match the given head: the log was replaced"
            ),
            VerifyErrorKind::Verified => f.write_str(
                "`verified`, which records what was verified before, was changed; remove it and \
                 verify again",
            ),
            VerifyErrorKind::Pruned(problem) => write!(f, "the base of the log, in `pruned`: {problem}"),
            VerifyErrorKind::Head(problem) => write!(f, "the head of the log: {problem}"),
            VerifyErrorKind::GivenHead(problem) => write!(f, "the given head: {problem}"),
            VerifyErrorKind::Key(problem) => f.write_str(problem),
            VerifyErrorKind::Unfinished => f.write_str(
                "the log has no signed head and no more than its first record: creating it was \
                 interrupted, and the next run creates it again; if there were records before, they \
                 were removed",
            ),
            VerifyErrorKind::Rotation => f.write_str("the change of keys is not signed by both keys"),
            VerifyErrorKind::Nodes => f.write_str(
                "the stored tree does not match it; the file `nodes` can be removed and is rebuilt",
            ),
            VerifyErrorKind::Unreadable(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for VerifyError {}
