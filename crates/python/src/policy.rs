//! Policies: read, asked, explained.

use std::path::PathBuf;
use std::sync::Arc;

use brig_policy::{Action, Compat, Decider, Document, Extra, PolicySet, Problem, Request};
use brig_sandbox::{Error, PolicyFiles, read_policy};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error;
use crate::request;

/// A policy that was read and is valid.
#[pyclass(frozen, module = "brig._native")]
#[derive(Debug)]
pub(crate) struct Policy {
    document: Arc<Document>,
    /// The file it is from: a session must not be able to change it.
    origin: Option<PathBuf>,
    warnings: Vec<Problem>,
}

#[pymethods]
impl Policy {
    /// Reads a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, agt: bool) -> PyResult<Self> {
        let text = py.detach(|| read_policy(&path));
        let name = path.display().to_string();
        text.and_then(|text| Self::of(&name, &text, agt, Some(path)))
            .map_err(|failed| error::raise(py, failed))
    }

    /// Reads YAML or JSON. `name` is what problems are reported for.
    #[staticmethod]
    fn parse(py: Python<'_>, name: &str, text: &str, agt: bool) -> PyResult<Self> {
        Self::of(name, text.as_bytes(), agt, None).map_err(|failed| error::raise(py, failed))
    }

    #[getter]
    fn name(&self) -> &str {
        self.document.name()
    }

    #[getter]
    fn digest(&self) -> String {
        self.document.digest().to_string()
    }

    /// The names of the tools that it lists.
    #[getter]
    fn tools(&self) -> Vec<&str> {
        let listed = self.document.tool_allowlist().iter();
        listed.map(|given| given.value.as_str()).collect()
    }

    /// What is valid but questionable, as JSON.
    #[getter]
    fn warnings(&self) -> String {
        json!(self.warnings).to_string()
    }
}

impl Policy {
    fn of(name: &str, text: &[u8], agt: bool, origin: Option<PathBuf>) -> Result<Self, Error> {
        let compat = if agt { Compat::Agt } else { Compat::Strict };
        let loaded =
            Document::load(name, text, compat).map_err(|problems| Error::PolicyInvalid {
                files: vec![name.to_owned()],
                problems: problems.0,
            })?;
        Ok(Self {
            document: loaded.document,
            warnings: loaded.warnings,
            origin,
        })
    }

    pub(crate) fn added_to(&self, files: PolicyFiles) -> PolicyFiles {
        files.and(Some(self.document.clone()), self.origin.clone())
    }
}

/// What is asked: JSON from the package.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    agent: String,
    code: Option<String>,
    language: Option<String>,
    command: Option<Vec<String>>,
    tool: Option<String>,
    facts: Option<Value>,
}

/// What policies decide on a question, and why: JSON.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    policies: Vec<Bound<'_, Policy>>,
    question: &str,
) -> PyResult<String> {
    let documents = policies.iter().map(|policy| policy.get().document.clone());
    let set = PolicySet::new(documents.collect());
    let explained = py.detach(|| explanation(&set, question));
    explained.map_err(|failed| error::raise(py, failed))
}

fn explanation(set: &PolicySet, question: &str) -> Result<String, Error> {
    let given: Question =
        serde_json::from_str(question).map_err(|failed| error::invalid("question", failed))?;
    let language = (given.language.as_deref().map(request::language)).transpose()?;
    let extra: Extra = request::facts(given.facts.as_ref())?;
    let action = match (&given.tool, &given.command) {
        (Some(_), _) => Action::CallTool,
        (None, Some(_)) => Action::Run,
        (None, None) => Action::Execute,
    };
    let mut asked = Request::new(&given.agent, action);
    asked.code = given.code.as_deref().map(str::as_bytes);
    asked.language = language.map(brig_sandbox::Language::name);
    asked.command = given.command.as_deref();
    asked.tool = given.tool.as_deref();
    asked.extra = Some(&extra);
    let decision = set.decide(&asked);
    let mut object = json!(set.explain(&set.context(&asked)));
    object["decision"] = json!({
        "allowed": decision.allowed,
        "needs_approval": decision.needs_approval,
        "code": decision.code,
        "rule": decision.rule,
        "reason": decision.reason,
    });
    Ok(object.to_string())
}
