//! What can be enforced here, by what, and how to fix the rest.

use std::sync::Arc;

use brig_sandbox::{Backend, Error, Request, Sandbox, SessionConfig};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::backends;
use crate::config;
use crate::error;
use crate::operation::Operation;

/// Tries each backend; the answer is JSON.
#[pyfunction]
pub(crate) fn doctor(py: Python<'_>, setup: &str) -> PyResult<Operation> {
    let setup = config::setup(setup).map_err(|failed| error::raise(py, failed))?;
    Ok(Operation::new(async move {
        let mut found = Vec::new();
        for name in backends::backends() {
            found.push(match backends::open(name, &setup, &None).await {
                Ok(backend) => check(name, backend).await,
                Err(problem) => described(name, Some(&problem), json!([]), json!([])),
            });
        }
        Ok(Value::from(found).to_string())
    }))
}

async fn check(name: &str, backend: Arc<dyn Backend>) -> Value {
    let findings = json!(backend.findings(None).await);
    let controls = match backend.probe(&SessionConfig::default()).await {
        Ok(offer) => offer.controls.0,
        Err(cause) => {
            let backend = backend.id().clone();
            let problem = Error::Unavailable { backend, cause };
            return described(name, Some(&problem), findings, json!([]));
        }
    };
    let controls: Vec<Value> = (controls.iter())
        .map(|state| {
            let mut object = json!(state);
            object["meaning"] = json!(state.control.meaning());
            object
        })
        .collect();
    match attempt(backend).await {
        Ok(()) => described(name, None, findings, json!(controls)),
        // Nothing is enforced where nothing runs.
        Err(problem) => described(name, Some(&problem), findings, json!([])),
    }
}

fn described(name: &str, problem: Option<&Error>, findings: Value, controls: Value) -> Value {
    json!({
        "name": name,
        "usable": problem.is_none(),
        "problem": problem.map(ToString::to_string),
        "code": problem.map(Error::code),
        "hint": problem.and_then(Error::hint),
        "findings": findings,
        "controls": controls,
    })
}

/// Runs a program: the only proof that code can be run.
async fn attempt(backend: Arc<dyn Backend>) -> Result<(), Error> {
    let sandbox = Sandbox::builder(backend).build()?;
    let request = Request::command(["true"]);
    let config = SessionConfig::default();
    let report = sandbox
        .run_once(&"doctor".parse()?, config, request)
        .await?;
    match report.outcome.success() {
        true => Ok(()),
        false => Err(Error::Setup {
            step: "the test program `true`".into(),
            problem: "it did not succeed".into(),
        }),
    }
}
