//! One tool of a server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brig_tools::{Arguments, Tool, ToolError, ToolSpec};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock};
use rmcp::service::ServiceError;
use serde_json::Value;

use super::Connection;
use super::list::Chosen;
use crate::secrets::Secrets;
use crate::text::{clean, first_line};
use crate::{SourceError, schema};

/// The longest description, in characters.
const DESCRIPTION: usize = 4096;
/// The largest result, in bytes of JSON.
const LARGEST: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct McpTool {
    spec: ToolSpec,
    /// Its name on the server.
    original: String,
    connection: Arc<Connection>,
}

impl McpTool {
    pub(super) fn new(
        chosen: Chosen,
        timeout: Option<Duration>,
        connection: &Arc<Connection>,
    ) -> Result<Self, SourceError> {
        let Chosen { name, tool } = chosen;
        let description = tool.description.as_deref().or(tool.title.as_deref());
        let description = clean_lines(description.unwrap_or_default());
        let mut spec = ToolSpec::new(name, description);
        let about = spec.name.as_str();
        let input = schema::input(about, Value::Object((*tool.input_schema).clone()))?;
        let output = tool
            .output_schema
            .map(|output| schema::output(about, Value::Object((*output).clone())));
        spec.output_schema = output.transpose()?;
        spec.input_schema = input;
        spec.timeout = timeout;
        spec.source = format!("MCP server {}", connection.name);
        Ok(Self {
            spec,
            original: tool.name.into_owned(),
            connection: connection.clone(),
        })
    }

    async fn ask(&self, arguments: Arguments) -> Result<Value, ToolError> {
        self.connection.expect_answer().await;
        let request = CallToolRequestParams::new(self.original.clone()).with_arguments(arguments);
        // Dropped, it is cancelled on the server.
        let secrets = &self.connection.secrets;
        match self.connection.client.call_tool(request).await {
            Ok(answer) => result(answer, secrets),
            Err(ServiceError::McpError(error)) => {
                let said = secrets.hide(&error.message);
                Err(ToolError::Failed(first_line(&said)))
            }
            Err(
                ServiceError::UnexpectedResponse | ServiceError::InputRequiredRoundsExceeded { .. },
            ) => Err(ToolError::InvalidResult(
                "the server did not answer with a result".into(),
            )),
            Err(_) => {
                self.connection.tell_lost().await;
                Err(ToolError::Unavailable)
            }
        }
    }
}

/// Lines stay lines; other control characters do not.
fn clean_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| clean(line, DESCRIPTION)).collect();
    let text = lines.join("\n");
    match text.char_indices().nth(DESCRIPTION) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Structured content if there is some, else text, else all that was sent.
fn result(answer: CallToolResult, secrets: &Secrets) -> Result<Value, ToolError> {
    let texts: Option<Vec<&str>> = (answer.content.iter())
        .map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    if answer.is_error == Some(true) {
        let said = secrets.hide(&texts.unwrap_or_default().join("\n"));
        return Err(ToolError::Failed(match first_line(&said) {
            said if said.is_empty() => "the tool failed".into(),
            said => said,
        }));
    }
    let value = match (answer.structured_content, texts) {
        (Some(structured), _) => structured,
        (None, Some(texts)) => Value::String(texts.join("\n")),
        (None, None) => serde_json::to_value(&answer.content)
            .map_err(|_| ToolError::InvalidResult("it is not JSON".into()))?,
    };
    match value.to_string().len() > LARGEST {
        true => Err(ToolError::ResultTooLarge(LARGEST)),
        false => Ok(value),
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Arguments) -> Result<Value, ToolError> {
        let answer = self.ask(arguments);
        match self.spec.timeout {
            None => answer.await,
            Some(after) => match tokio::time::timeout(after, answer).await {
                Ok(result) => result,
                Err(_) => Err(ToolError::TimedOut(after)),
            },
        }
    }
}
