//! One tool.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::{ToolError, ToolName};

/// The arguments of a call, by name.
pub type Arguments = Map<String, Value>;

/// What callers see of a tool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name that code calls it by.
    pub name: ToolName,
    /// What it does, for people and models.
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub input_schema: Value,
    /// JSON Schema of the result, if the tool has one.
    pub output_schema: Option<Value>,
    /// How long one call may take. `None`: as long as the default of the sandbox.
    pub timeout: Option<Duration>,
    /// Where it comes from, for people, such as `library`, `command ./fetch.sh` or `MCP server github`.
    pub source: String,
}

impl ToolSpec {
    /// A tool of the library whose arguments can be anything.
    #[must_use]
    pub fn new(name: ToolName, description: impl Into<String>) -> Self {
        Self {
            name,
            description: description.into(),
            input_schema: serde_json::json!({ "type": "object" }),
            output_schema: None,
            timeout: None,
            source: "library".to_owned(),
        }
    }
}

/// A host function that sandboxed code may call.
#[async_trait]
pub trait Tool: Debug + Send + Sync {
    /// What callers see of it. Never changes.
    fn spec(&self) -> &ToolSpec;

    /// Calls it. A call that is no longer wanted is dropped: whatever it has started must end then.
    ///
    /// # Errors
    ///
    /// If the tool fails. The message reaches the sandboxed code, so it contains no host path and no secret.
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolError>;
}
