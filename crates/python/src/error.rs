//! Errors as the exceptions of the package.

use brig_sandbox::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// The exception for an error. Their classes are Python's: `brig._errors`.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    let (error, report) = match error {
        Error::Interrupted(known) => (known.error, Some(known.report.to_json())),
        error => (error, None),
    };
    let (kind, rule, mut details) = describe(&error);
    if let Some(report) = report {
        details["report"] = report;
    }
    let code = match &error {
        Error::Denied(denial) => denial.code(),
        other => other.code(),
    };
    let hint = error.hint();
    let details = details.to_string();
    make(
        py,
        kind,
        &error.to_string(),
        code,
        hint.as_deref(),
        rule,
        &details,
    )
}

/// For use in a process that has only a copy.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    let message = "this sandbox belongs to the process that created it, and this process is a fork of that one";
    let hint = "create a sandbox in each process, after the fork";
    make(
        py,
        "forked",
        message,
        "session.busy",
        Some(hint),
        None,
        "{}",
    )
}

/// An argument that the package must not have let through.
pub(crate) fn invalid(what: &'static str, problem: impl ToString) -> Error {
    Error::InvalidConfig {
        what,
        problem: problem.to_string(),
    }
}

pub(crate) fn make(
    py: Python<'_>,
    kind: &str,
    message: &str,
    code: &str,
    hint: Option<&str>,
    rule: Option<&str>,
    details: &str,
) -> PyErr {
    let arguments = (kind, message, code, hint, rule, details);
    let made = py
        .import("brig._errors")
        .and_then(|module| module.call_method1("make", arguments));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(message.to_owned()),
    }
}

/// The class, the rule, and what else there is to know.
fn describe(error: &Error) -> (&'static str, Option<&str>, Value) {
    let kind = match error {
        Error::Denied(denial) => return ("denied", denial.rule(), denial.to_json()),
        Error::PolicyInvalid { problems, .. } => {
            return ("policy", None, json!({ "problems": problems }));
        }
        Error::CannotRun { exit_code, .. } => {
            return ("cannot-run", None, json!({ "exit_code": exit_code }));
        }
        Error::InvalidName { .. }
        | Error::InvalidConfig { .. }
        | Error::MountRefused { .. }
        | Error::PolicyWritable { .. }
        | Error::NoGovernance(_)
        | Error::OtherBackend { .. }
        | Error::SessionAmbiguous { .. } => "invalid",
        Error::Unenforceable(_) => "unenforceable",
        Error::NoSession { .. }
        | Error::SessionUnknown(_)
        | Error::NoExecution(_)
        | Error::NoCheckpoint(_) => "not-found",
        Error::SessionExists { .. } | Error::CheckpointExists { .. } => "exists",
        Error::SessionBusy { .. } => "busy",
        Error::NoInterpreter { .. } => "cannot-run",
        Error::File { .. } => "file",
        Error::Unavailable { .. } | Error::Engine { .. } | Error::Setup { .. } => "unavailable",
        Error::InstanceLost(_) | Error::Protocol(_) => "lost",
        _ => "error",
    };
    (kind, None, json!({}))
}
