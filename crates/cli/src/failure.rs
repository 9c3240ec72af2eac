//! Errors, as text on stderr and as JSON.

use std::fmt;
use std::io::Write;

use brig_policy::Decision;
use brig_reason::ReasonCode;
use brig_sandbox::{Denial, Error, Interrupted};
use serde_json::{Value, json};

use crate::log::{self, Level};
use crate::{escape, exit, json, units};

#[derive(Debug)]
pub(crate) struct Failure {
    /// Stable, such as `session.unknown`.
    code: ReasonCode,
    message: String,
    hint: Option<String>,
    exit: u8,
    denied: Option<Box<Denial>>,
    lost: Option<Box<Interrupted>>,
    /// Sessions that were destroyed before it.
    destroyed: Vec<Value>,
}

impl Failure {
    pub(crate) fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            exit: exit::FAILED,
            denied: None,
            lost: None,
            destroyed: Vec::new(),
        }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ReasonCode::InputUsage, message)
    }

    /// A file on the host.
    pub(crate) fn file(path: &str, error: &std::io::Error) -> Self {
        Self::new(
            ReasonCode::FileFailed,
            format!("file `{path}`: {}", describe(error)),
        )
    }

    /// A denial by a policy without an execution to report.
    pub(crate) fn denial(decision: &Decision) -> Self {
        Self::new(ReasonCode::PolicyDenied, denial(decision)).with_exit(exit::DENIED)
    }

    /// A signal arrived before there was anything to cancel, or arrived twice.
    pub(crate) fn interrupted(signal: i32) -> Self {
        Self::new(ReasonCode::RunCancelled, "cancelled").with_exit(exit::of_signal(signal))
    }

    pub(crate) fn with_exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure of an operation that has destroyed these sessions.
    pub(crate) fn after(mut self, destroyed: Vec<Value>) -> Self {
        if !destroyed.is_empty() {
            let count = units::count(destroyed.len(), "session");
            self.message = format!("{count} destroyed, but then: {}", self.message);
            self.code = ReasonCode::OperationIncomplete;
            self.destroyed = destroyed;
        }
        self
    }

    /// Controls are waived where a session is created, not where something is run in it.
    pub(crate) fn in_session(mut self) -> Self {
        if let (ReasonCode::PolicyUnenforceable, Some(hint)) = (self.code, &mut self.hint) {
            hint.push_str(" of `brig session create`");
        }
        self
    }

    /// What a flag requires is not waived by another one.
    pub(crate) fn if_required(mut self, required: bool) -> Self {
        if let (ReasonCode::PolicyUnenforceable, true, Some(hint)) =
            (self.code, required, &mut self.hint)
        {
            *hint = hint.replace("accept the risk with --waive", "leave out --require");
        }
        self
    }

    /// The operation took place all the same.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.code == ReasonCode::OperationIncomplete
    }

    /// Something else uses the session.
    pub(crate) fn is_busy(&self) -> bool {
        self.code == ReasonCode::SessionBusy
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn exit(&self) -> u8 {
        self.exit
    }

    pub(crate) fn denied(&self) -> Option<&Denial> {
        self.denied.as_deref()
    }

    /// What is known of an execution whose sandbox was lost.
    pub(crate) fn lost(&self) -> Option<&Interrupted> {
        self.lost.as_deref()
    }

    pub(crate) fn json(&self) -> Value {
        let mut object = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        if !self.destroyed.is_empty() {
            object["destroyed"] = Value::from(self.destroyed.as_slice());
        }
        object
    }

    /// On stderr, and as a JSON object on stdout if requested.
    pub(crate) fn report(&self, as_json: bool) {
        if as_json {
            json::print(&json!({ "error": self.json() }));
        }
        self.show();
    }

    /// `error: …` and `hint: …`. Parts of the text may come from the sandbox.
    pub(crate) fn show(&self) {
        error(&self.message);
        if let Some(hint) = &self.hint {
            say(CYAN, "hint", hint);
        }
    }
}

/// Our stdout cannot be written, for example because its disk is full.
pub(crate) fn unwritten(error: &std::io::Error) -> Failure {
    Failure::new(
        ReasonCode::IoFailed,
        format!("cannot write to stdout: {}", describe(error)),
    )
    .with_hint("the output is incomplete")
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
            Error::Denied(denied) => denial(denied.decision()),
            Error::Unenforceable(_) => format!("{error} ({})", error.code()),
            _ => without_numbers(&error.to_string()),
        };
        let mut failure = Self {
            code: error.reason(),
            message,
            hint: error.hint(),
            exit,
            denied: None,
            lost: None,
            destroyed: Vec::new(),
        };
        match error {
            Error::Denied(denied) => failure.denied = Some(denied),
            Error::Interrupted(interrupted) => failure.lost = Some(interrupted),
            _ => {}
        }
        failure
    }
}

/// The reason, the rule and the reason code.
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
pub(crate) fn describe(error: &std::io::Error) -> String {
    let text = without_numbers(&error.to_string());
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// Without `(os error 2)`, which does not help a reader.
pub(crate) fn without_numbers(text: &str) -> String {
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

pub(crate) fn error(text: &str) {
    say(RED, "error", text);
}

pub(crate) fn warning(text: &str) {
    at(Level::Warn, YELLOW, "warning", text);
}

pub(crate) fn note(text: &str) {
    at(Level::Info, YELLOW, "note", text);
}

/// A line of the summary after a run: what was denied, and why.
pub(crate) fn denied(text: &str) {
    at(Level::Info, YELLOW, "denied", text);
}

pub(crate) fn debug(text: &str) {
    at(Level::Debug, CYAN, "debug", text);
}

/// A line of the launch summary: hosts that may be reached.
pub(crate) fn network(text: &str) {
    at(Level::Info, CYAN, "network", text);
}

/// A line of the launch summary: host directories that are mounted.
pub(crate) fn shown(text: &str) {
    at(Level::Info, CYAN, "shown", text);
}

/// A line of the launch summary: secrets that are hidden.
pub(crate) fn hidden(text: &str) {
    at(Level::Info, CYAN, "hidden", text);
}

pub(crate) fn hint(text: &str) {
    at(Level::Info, CYAN, "hint", text);
}

/// Ends a line that the program has begun.
pub(crate) fn end_line() {
    let _ = writeln!(anstream::stderr());
}

/// Lines without a label.
pub(crate) fn plain(text: &str) {
    for line in text.lines() {
        let _ = writeln!(anstream::stderr(), "{}", escape::line(line));
    }
}

fn at(level: Level, colour: &str, label: &str, text: &str) {
    if log::shows(level) {
        say(colour, label, text);
    }
}

fn say(colour: &str, label: &str, text: &str) {
    // If stderr is broken, the error cannot be reported.
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
    fn a_waiver_is_suggested_only_where_it_can_be_given() {
        let unmet = || Failure::from(Error::Unenforceable(Vec::new()));
        let of_run = unmet().hint().expect("a hint").to_owned();
        let in_session = unmet().in_session();
        let expected = format!("{of_run} of `brig session create`");
        assert_eq!(in_session.hint(), Some(expected.as_str()));
        let required = unmet().if_required(true);
        assert!(
            required
                .hint()
                .is_some_and(|hint| hint.starts_with("leave out --require"))
        );
        assert_eq!(unmet().if_required(false).hint(), Some(of_run.as_str()));
        let other = Failure::usage("x").with_hint("y").in_session();
        assert_eq!(other.hint(), Some("y"));
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
