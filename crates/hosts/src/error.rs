//! Why an entry is not a valid host, and what was probably meant.

use std::fmt;

use brig_reason::ReasonCode;

/// An entry that is not a valid host, or not a valid rule about hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    entry: String,
    problem: String,
    fix: Option<String>,
}

impl HostError {
    pub(crate) fn new(entry: &str, problem: impl Into<String>) -> Self {
        Self {
            entry: entry.to_owned(),
            problem: problem.into(),
            fix: None,
        }
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same for every such error.
    pub fn code(&self) -> ReasonCode {
        ReasonCode::InputHost
    }

    /// The entry as it was given.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// What is wrong, without what to do.
    pub fn message(&self) -> String {
        format!(
            "{} is not a valid host: {}",
            quoted(&self.entry),
            self.problem
        )
    }

    /// What to do.
    pub fn hint(&self) -> Option<&str> {
        self.fix.as_deref()
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HostError {}

/// In backticks, on one line, and not endless.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().count() > MOST {
        shown.push('…');
    }
    format!("`{shown}`")
}
