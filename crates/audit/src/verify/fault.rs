use std::fmt;
use std::path::Path;

use crate::escape;
use crate::log::LogError;

/// The first thing that is wrong with a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    pub flaw: Flaw,
    /// The first record that is not as it should be.
    pub record: Option<u64>,
    /// The file and the line it stands in, counted from 1.
    pub place: Option<(String, u64)>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// The line is not what a log writes.
    NotARecord,
    /// Its hash does not fit what it says.
    Changed,
    /// Another record stands in its place: some were removed, moved or repeated.
    OutOfPlace(u64),
    /// It does not follow from the record before it: one of them was replaced.
    Unlinked,
    /// Its line ends in the middle, and others follow.
    Incomplete,
    /// The log ends before it, although a head speaks of this many records.
    Truncated(u64),
    /// The first records are not those that the given head signs.
    Replaced(u64),
    /// The log's own head.
    Head(String),
    GivenHead(String),
    Key(String),
    /// A change of keys that is not signed by both.
    Rotation,
    /// The stored tree, which can be made again.
    Nodes,
    Unreadable(String),
}

impl Fault {
    pub(crate) fn of(flaw: Flaw) -> Self {
        Self {
            flaw,
            record: None,
            place: None,
        }
    }

    pub(crate) fn at(record: u64, flaw: Flaw) -> Self {
        Self {
            record: Some(record),
            ..Self::of(flaw)
        }
    }

    pub(crate) fn in_file(mut self, path: &Path, line: u64) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.place.get_or_insert((name.into_owned(), line));
        self
    }

    /// The stable reason code.
    pub fn code(&self) -> &'static str {
        match &self.flaw {
            Flaw::NotARecord => "audit.not-a-record",
            Flaw::Changed => "audit.changed",
            Flaw::OutOfPlace(_) => "audit.out-of-place",
            Flaw::Unlinked => "audit.unlinked",
            Flaw::Incomplete => "audit.incomplete",
            Flaw::Truncated(_) => "audit.truncated",
            Flaw::Replaced(_) => "audit.replaced",
            Flaw::Head(_) | Flaw::GivenHead(_) => "audit.head",
            Flaw::Key(_) => "audit.key",
            Flaw::Rotation => "audit.rotation",
            Flaw::Nodes => "audit.nodes",
            Flaw::Unreadable(_) => "audit.io",
        }
    }
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        Self::of(match error {
            LogError::Key { .. } => Flaw::Key(error.to_string()),
            _ => Flaw::Unreadable(error.to_string()),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(record) = self.record {
            write!(f, "record {record}")?;
            if let Some((file, line)) = &self.place {
                write!(f, " ({}, line {line})", escape::line(file))?;
            }
            f.write_str(": ")?;
        }
        match &self.flaw {
            Flaw::NotARecord => f.write_str("the line is no record"),
            Flaw::Changed => f.write_str("it was changed: its hash does not fit what it says"),
            Flaw::OutOfPlace(found) => write!(
                f,
                "record {found} stands in its place: records were removed, moved or repeated"
            ),
            Flaw::Unlinked => f.write_str(
                "it does not follow from the record before it: one of them was replaced",
            ),
            Flaw::Incomplete => f.write_str("its line ends in the middle, and others follow"),
            Flaw::Truncated(expected) => write!(
                f,
                "it is missing: the log ends before it, but a head speaks of {expected} records"
            ),
            Flaw::Replaced(size) => write!(
                f,
                "the first {size} records are not those that the given head signs: the log was replaced"
            ),
            Flaw::Head(problem) => write!(f, "the head of the log: {problem}"),
            Flaw::GivenHead(problem) => write!(f, "the given head: {problem}"),
            Flaw::Key(problem) => f.write_str(problem),
            Flaw::Rotation => f.write_str("the change of keys is not signed by both keys"),
            Flaw::Nodes => f.write_str(
                "the stored tree does not fit it; the file `nodes` can be removed, it is made again",
            ),
            Flaw::Unreadable(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for Fault {}
