//! What went wrong, for people on stderr and for programs as JSON.

use std::fmt;
use std::io::Write;

use brig_policy::Decision;
use brig_sandbox::{Error, Report};
use serde_json::{Value, json};

use crate::{escape, exit, json};

#[derive(Debug)]
pub struct Failure {
    /// Stable, such as `session.unknown`.
    code: &'static str,
    message: String,
    hint: Option<String>,
    exit: u8,
    /// What is known of an execution that was denied.
    denied: Option<Box<Report>>,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            exit: exit::FAILED,
            denied: None,
        }
    }

    /// The command line says something that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new("input.usage", message)
    }

    /// A file of the host.
    pub fn file(path: &str, error: &std::io::Error) -> Self {
        Self::new("file.failed", format!("file `{path}`: {}", describe(error)))
    }

    /// A policy said no, where there is no execution to report about.
    pub fn denial(decision: &Decision) -> Self {
        Self::new("policy.denied", denial(decision)).with_exit(exit::DENIED)
    }

    /// A signal came before there was anything to cancel, or came twice.
    pub fn interrupted(signal: i32) -> Self {
        Self::new("run.cancelled", "cancelled").with_exit(exit::of_signal(signal))
    }

    pub fn with_exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn code(&self) -> &'static str {
        self.code
    }

    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub fn exit(&self) -> u8 {
        self.exit
    }

    pub fn denied(&self) -> Option<&Report> {
        self.denied.as_deref()
    }

    pub fn json(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "hint": self.hint })
    }

    /// On stderr; and, where an object was asked for, on stdout as that object.
    pub fn report(&self, as_json: bool) {
        if as_json {
            json::print(&json!({ "error": self.json() }));
        }
        self.show();
    }

    /// `error: …` and `hint: …`. Parts of the text may come from the sandbox.
    pub fn show(&self) {
        error(&self.message);
        if let Some(hint) = &self.hint {
            self::hint(hint);
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape::line(&self.message))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Denied(_) => exit::DENIED,
            Error::CannotRun { exit_code, .. } => u8::try_from(*exit_code).unwrap_or(exit::FAILED),
            _ => exit::FAILED,
        };
        let message = match &error {
            Error::Denied(report) => denial(&report.decision),
            Error::Unenforceable(_) => format!("{error} ({})", error.code()),
            _ => without_numbers(&error.to_string()),
        };
        Self {
            code: error.code(),
            message,
            hint: error.hint(),
            exit,
            denied: match error {
                Error::Denied(report) => Some(report),
                _ => None,
            },
        }
    }
}

/// The reason, the rule that gave it, and the code it is known by.
fn denial(decision: &Decision) -> String {
    let rule = match &decision.rule {
        Some(rule) => format!("rule `{rule}`, "),
        None => String::new(),
    };
    format!(
        "denied by policy: {} ({rule}{})",
        decision.reason, decision.code
    )
}

/// In the style of our own messages.
pub fn describe(error: &std::io::Error) -> String {
    let text = without_numbers(&error.to_string());
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// Without the `(os error 2)` that tells a reader nothing.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<u32>().is_ok() => out.push_str(rest),
            _ => out.push_str(&format!(" (os error {part}")),
        }
    }
    out
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[1;36m";
const PLAIN: &str = "\x1b[0m";

pub fn error(text: &str) {
    say(RED, "error", text);
}

pub fn warning(text: &str) {
    say(YELLOW, "warning", text);
}

pub fn note(text: &str) {
    say(YELLOW, "note", text);
}

/// A line of the summary of what may be reached.
pub fn network(text: &str) {
    say(CYAN, "network", text);
}

pub fn hint(text: &str) {
    say(CYAN, "hint", text);
}

/// Lines without a label.
pub fn plain(text: &str) {
    for line in text.lines() {
        let _ = writeln!(anstream::stderr(), "{}", escape::line(line));
    }
}

fn say(colour: &str, label: &str, text: &str) {
    // Nobody is left to tell if stderr itself is broken.
    let _ = writeln!(
        anstream::stderr(),
        "{colour}{label}:{PLAIN} {}",
        escape::line(text)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_has_its_own_exit_code() {
        let missing = Error::CannotRun {
            program: "x".into(),
            exit_code: 127,
            problem: "not found".into(),
        };
        assert_eq!(Failure::from(missing).exit(), 127);
        let unknown = Error::NoCheckpoint("x".into());
        assert_eq!(Failure::from(unknown).exit(), 125);
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        assert_eq!(without_numbers("a: gone (os error 2)"), "a: gone");
        assert_eq!(
            without_numbers("gone (os error 2), b (os error 13) c"),
            "gone, b c"
        );
        assert_eq!(
            without_numbers("x (os error y) (os error"),
            "x (os error y) (os error"
        );
    }
}
