//! What is wrong with a file, where, and what would mend it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A place in a file, from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    pub const START: Position = Position { line: 1, column: 1 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// A stable reason code, such as `policy.unknown-key`.
    pub code: &'static str,
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    #[serde(flatten)]
    pub at: Position,
    /// The way to the entry, such as `rules[2].condition.value`.
    pub entry: String,
    pub message: String,
    pub fix: Option<String>,
}

pub(crate) fn as_text<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
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

/// All that is wrong with what was loaded. At least one of them is an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

impl Problems {
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

/// The way to a value, written out only when it is needed.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    Root,
    Key(&'a Entry<'a>, &'a str),
    Index(&'a Entry<'a>, usize),
}

impl<'a> Entry<'a> {
    /// One that was written out already.
    pub fn written(way: &'a str) -> Entry<'a> {
        Entry::Key(&Entry::Root, way)
    }

    pub fn key(&'a self, key: &'a str) -> Entry<'a> {
        Entry::Key(self, key)
    }

    pub fn index(&'a self, index: usize) -> Entry<'a> {
        Entry::Index(self, index)
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Root => Ok(()),
            Entry::Key(Entry::Root, key) => f.write_str(key),
            Entry::Key(parent, key) => write!(f, "{parent}.{key}"),
            Entry::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// More problems than anyone reads are counted, not kept.
const MAX_KEPT: usize = 200;

/// Collects what is wrong while a file is read.
#[derive(Debug)]
pub struct Log {
    file: Arc<str>,
    problems: Vec<Problem>,
    dropped: usize,
    failed: bool,
}

/// A problem without its place.
#[derive(Clone, Debug)]
pub struct Fault {
    pub code: &'static str,
    pub message: String,
    pub fix: Option<String>,
}

impl Fault {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fix: None,
        }
    }

    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl Log {
    pub fn new(file: &str) -> Self {
        Self {
            file: file.into(),
            problems: Vec::new(),
            dropped: 0,
            failed: false,
        }
    }

    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub fn error(&mut self, at: Position, entry: &Entry<'_>, fault: Fault) {
        self.failed = true;
        self.push(Severity::Error, at, entry, fault);
    }

    pub fn warning(&mut self, at: Position, entry: &Entry<'_>, fault: Fault) {
        self.push(Severity::Warning, at, entry, fault);
    }

    pub fn failed(&self) -> bool {
        self.failed
    }

    fn push(&mut self, severity: Severity, at: Position, entry: &Entry<'_>, fault: Fault) {
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
                code: "policy.more",
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
        let rules = Entry::Key(&Entry::Root, "rules");
        let rule = rules.index(2);
        assert_eq!(rule.key("action").to_string(), "rules[2].action");
    }
}
