//! Python functions as tools.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brig_sandbox::{Arguments, Error, Tool, ToolError, ToolName, ToolRegistry, ToolSpec};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::callback;
use crate::error::invalid;

/// What the package says of a function: JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    description: String,
    input_schema: Value,
    timeout: Option<f64>,
}

#[derive(Debug)]
struct PythonTool {
    spec: ToolSpec,
    /// `(arguments, call) -> (succeeded, text)`: the result as JSON, or why it failed.
    function: Arc<Py<PyAny>>,
}

#[async_trait]
impl Tool for PythonTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Arguments) -> Result<Value, ToolError> {
        let arguments = Value::Object(arguments).to_string();
        let answer: Option<(bool, String)> = callback::call(&self.function, arguments).await;
        match answer {
            Some((true, result)) => serde_json::from_str(&result)
                .map_err(|error| ToolError::InvalidResult(error.to_string())),
            Some((false, why)) => Err(ToolError::Failed(why)),
            None => Err(ToolError::Unavailable),
        }
    }
}

/// Pairs of a description and a function.
pub(crate) fn registry(given: Vec<(String, Py<PyAny>)>) -> Result<ToolRegistry, Error> {
    let mut registry = ToolRegistry::default();
    for (description, function) in given {
        let described: Described =
            serde_json::from_str(&description).map_err(|error| invalid("tool", error))?;
        let name = ToolName::new(described.name).map_err(|error| invalid("tool", error))?;
        let mut spec = ToolSpec::new(name, described.description);
        spec.input_schema = described.input_schema;
        spec.timeout = (described.timeout.map(Duration::try_from_secs_f64))
            .transpose()
            .map_err(|error| invalid("timeout of a tool", error))?;
        let function = Arc::new(function);
        let tool = PythonTool { spec, function };
        registry.add(tool).map_err(|error| invalid("tool", error))?;
    }
    Ok(registry)
}
