//! What is wrong with a file, where, and how to fix it.

use std::fmt;
use std::sync::Arc;

use brig_reason::ReasonCode;
use serde::Serialize;

/// A position in a file: line and column from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl Position {
    /// The first character of a file.
    pub const START: Position = Position { line: 1, column: 1 };
}

/// Whether a problem makes a file invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is invalid.
    Error,
    /// The file is valid, but may not mean what its author thinks.
    Warning,
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// An error or a warning.
    pub severity: Severity,
    /// A stable reason code, such as `policy.unknown-key`.
    pub code: ReasonCode,
    /// The name of the file, as it was given to the reader.
    pub file: Arc<str>,
    /// Where in the file.
    #[serde(flatten)]
    pub at: Position,
    /// The path to the entry, such as `rules[2].condition.value`.
    pub entry: String,
    /// What is wrong, for people to read.
    pub message: String,
    /// What to do about it. `None` if there is nothing to suggest.
    pub fix: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.at;
        write!(f, "{}:{line}:{column}: ", self.file)?;
        if !self.entry.is_empty() {
            write!(f, "{}: ", self.entry)?;
        }
        f.write_str(&self.message)
    }
}

/// The problems of a file. At least one of them is an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// The problems that make the file invalid, without the warnings.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        (self.0.iter()).filter(|problem| problem.severity == Severity::Error)
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = (problems.iter())
        .filter(|problem| problem.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    lines.join("\n")
}

/// The path to a value in a file. Formatted only when it is needed.
#[derive(Clone, Copy, Debug)]
pub enum KeyPath<'a> {
    /// The file as a whole. Its text is empty.
    Root,
    /// A key of the map at the path.
    Key(&'a KeyPath<'a>, &'a str),
    /// An item of the list at the path, from 0.
    Index(&'a KeyPath<'a>, usize),
}

impl<'a> KeyPath<'a> {
    /// A path that was formatted already.
    pub fn written(way: &'a str) -> KeyPath<'a> {
        KeyPath::Key(&KeyPath::Root, way)
    }

    /// The path to a key of the map at this path.
    pub fn key(&'a self, key: &'a str) -> KeyPath<'a> {
        KeyPath::Key(self, key)
    }

    /// The path to an item of the list at this path, from 0.
    pub fn index(&'a self, index: usize) -> KeyPath<'a> {
        KeyPath::Index(self, index)
    }
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPath::Root => Ok(()),
            KeyPath::Key(KeyPath::Root, key) => f.write_str(key),
            KeyPath::Key(parent, key) => write!(f, "{parent}.{key}"),
            KeyPath::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Further problems are only counted.
const MAX_KEPT: usize = 200;

/// Collects what is wrong while a file is read.
#[derive(Debug)]
pub struct ProblemLog {
    file: Arc<str>,
    problems: Vec<Problem>,
    dropped: usize,
    failed: bool,
}

/// The code, message and fix of a problem, without its position.
#[derive(Clone, Debug)]
pub struct Fault {
    /// A stable reason code.
    pub code: ReasonCode,
    /// What is wrong, for people to read.
    pub message: String,
    /// What to do about it. `None` if there is nothing to suggest.
    pub fix: Option<String>,
}

impl Fault {
    /// A fault without a fix.
    pub fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fix: None,
        }
    }

    /// Adds what to do about it.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl ProblemLog {
    /// An empty log. The name of the file is used in messages.
    pub fn new(file: &str) -> Self {
        Self {
            file: file.into(),
            problems: Vec::new(),
            dropped: 0,
            failed: false,
        }
    }

    /// The name of the file.
    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// Adds an error: the file is invalid from now on. After 200 problems, they are only counted.
    pub fn error(&mut self, at: Position, entry: &KeyPath<'_>, fault: Fault) {
        self.failed = true;
        self.push(Severity::Error, at, entry, fault);
    }

    /// Adds a warning. After 200 problems, they are only counted.
    pub fn warning(&mut self, at: Position, entry: &KeyPath<'_>, fault: Fault) {
        self.push(Severity::Warning, at, entry, fault);
    }

    /// Whether there was an error, so that what was read must not be used.
    pub fn failed(&self) -> bool {
        self.failed
    }

    fn push(&mut self, severity: Severity, at: Position, entry: &KeyPath<'_>, fault: Fault) {
        if self.problems.len() >= MAX_KEPT {
            self.dropped += 1;
            return;
        }
        self.problems.push(Problem {
            severity,
            code: fault.code,
            file: self.file.clone(),
            at,
            entry: entry.to_string(),
            message: fault.message,
            fix: fault.fix,
        });
    }

    /// In the order of the file.
    pub fn finish(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| problem.at);
        if self.dropped > 0 {
            let severity = if self.failed {
                Severity::Error
            } else {
                Severity::Warning
            };
            let last = self.problems.last().map_or(Position::START, |last| last.at);
            self.problems.push(Problem {
                severity,
                code: ReasonCode::PolicyMore,
                file: self.file.clone(),
                at: last,
                entry: String::new(),
                message: format!("and {} more problems", self.dropped),
                fix: None,
            });
        }
        self.problems
    }
}

/// The candidate that was probably meant.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&given, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(3))
        .min_by_key(|(distance, candidate)| {
            let alike = given.bytes().zip(candidate.bytes());
            let alike = alike.take_while(|(a, b)| a == b).count();
            (*distance, std::cmp::Reverse(alike))
        })
        .map(|(_, candidate)| candidate)
}

/// User input in a message: of a bounded length, and without control characters.
pub fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let mut out = String::from("`");
    for c in text.chars().take(MOST) {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out.push('`');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_nothing_far_off() {
        let names = ["rules", "defaults", "network_allowlist"];
        assert_eq!(nearest("rulse", names), Some("rules"));
        assert_eq!(nearest("Defaults", names), Some("defaults"));
        assert_eq!(
            nearest("network_allow_list", names),
            Some("network_allowlist")
        );
        assert_eq!(nearest("colour", names), None);
        let folders = ["input_dir", "output_dir"];
        assert_eq!(nearest("out_dir", folders), Some("output_dir"));
    }

    #[test]
    fn the_way_to_an_entry_reads_like_code() {
        let rules = KeyPath::Key(&KeyPath::Root, "rules");
        let rule = rules.index(2);
        assert_eq!(rule.key("action").to_string(), "rules[2].action");
    }
}
