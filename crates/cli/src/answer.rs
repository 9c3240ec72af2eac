//! The object that `run --json` and `session exec --json` print, whatever happened.

use brig_sandbox::Report;
use serde_json::{Value, json};

use crate::failure::Failure;

/// An execution that took place.
pub fn success(report: &Report) -> Value {
    let mut object = report.to_json();
    object["error"] = Value::Null;
    object
}

/// An execution that did not, with the same keys.
pub fn failure(
    agent: Option<&str>,
    session: Option<&str>,
    backend: Option<&str>,
    failure: &Failure,
) -> Value {
    json!({
        "execution_id": null,
        "agent_id": agent,
        "session_id": session,
        "backend": backend,
        "status": "failed",
        "decision": null,
        "result": null,
        "enforcement": [],
        "waived": [],
        "egress": [],
        "commands": [],
        "tools": [],
        "error": failure.json(),
    })
}
