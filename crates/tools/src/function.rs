//! Tools that are functions of the program that uses the library.

use std::fmt;
use std::future::Future;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Arguments, Tool, ToolError, ToolSpec};

/// A tool that calls an async function.
///
/// ```
/// use brig_tools::{FunctionTool, ToolError, ToolName, ToolRegistry, ToolSpec};
///
/// let name = ToolName::new("fetch_arxiv").expect("a valid name");
/// let mut spec = ToolSpec::new(name, "Searches arXiv.");
/// spec.input_schema = serde_json::json!({
///     "type": "object",
///     "properties": { "query": { "type": "string" } },
///     "required": ["query"],
///     "additionalProperties": false
/// });
/// let tool = FunctionTool::new(spec, |arguments| async move {
///     Ok(serde_json::json!({ "results": [arguments["query"]] }))
/// });
/// let mut registry = ToolRegistry::default();
/// registry.add(tool).expect("the name is free");
/// ```
pub struct FunctionTool<F> {
    spec: ToolSpec,
    function: F,
}

impl<F, C> FunctionTool<F>
where
    F: Fn(Arguments) -> C + Send + Sync,
    C: Future<Output = Result<Value, ToolError>> + Send,
{
    /// Calls this function. If a call is no longer wanted, its future is dropped.
    pub fn new(spec: ToolSpec, function: F) -> Self {
        Self { spec, function }
    }
}

impl<F> fmt::Debug for FunctionTool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<F, C> Tool for FunctionTool<F>
where
    F: Fn(Arguments) -> C + Send + Sync,
    C: Future<Output = Result<Value, ToolError>> + Send,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Arguments) -> Result<Value, ToolError> {
        (self.function)(arguments).await
    }
}
