//! A command of the host as a tool.

use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use brig_tools::{Arguments, Tool, ToolError, ToolName, ToolSpec};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::program::Program;
use crate::secrets::Secrets;
use crate::text::{clean, first_line};
use crate::{Notify, SourceError, bounded, schema};

/// The largest result, in bytes.
const LARGEST: usize = 4 << 20;
/// How much of stderr the operator is shown, in bytes.
const STDERR_SHOWN: usize = 4 << 10;

/// A command of the host: the arguments are a JSON object on its stdin, the result is what it writes to stdout, JSON
/// or text. Every call is a process of its own.
pub struct CommandTool {
    spec: ToolSpec,
    program: Program,
    secrets: Secrets,
    notify: Notify,
}

impl CommandTool {
    /// A command that takes any arguments.
    #[must_use]
    pub fn new(name: ToolName, program: Program, notify: Notify) -> Self {
        let mut spec = ToolSpec::new(name, "");
        spec.source = format!("command {}", program.display());
        Self {
            spec,
            secrets: program.secrets(),
            program,
            notify,
        }
    }

    /// Says what it does.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.spec.description = text.into();
        self
    }

    /// Ends a call after this time.
    #[must_use]
    pub fn timeout(mut self, after: Duration) -> Self {
        self.spec.timeout = Some(after);
        self
    }

    /// The JSON Schema of its arguments.
    ///
    /// # Errors
    ///
    /// If it is not one of an object.
    pub fn input_schema(mut self, schema: Value) -> Result<Self, SourceError> {
        self.spec.input_schema = schema::input(self.spec.name.as_str(), schema)?;
        Ok(self)
    }

    /// The JSON Schema of its result.
    ///
    /// # Errors
    ///
    /// If it is not a schema.
    pub fn output_schema(mut self, schema: Value) -> Result<Self, SourceError> {
        self.spec.output_schema = Some(schema::output(self.spec.name.as_str(), schema)?);
        Ok(self)
    }

    async fn run(&self, arguments: Arguments) -> Result<Value, ToolError> {
        let (mut child, supervision) = self.program.start().map_err(|error| {
            self.tell(&format!("did not start: {error}"));
            ToolError::Unavailable
        })?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(ToolError::Unavailable);
        };
        let text = Value::Object(arguments).to_string();
        // A tool that reads nothing is none of our business.
        let write = async move {
            let _ = stdin.write_all(text.as_bytes()).await;
        };
        let read = async {
            let output = bounded::read_all(stdout, LARGEST).await;
            if matches!(output, Ok(None)) {
                drop(supervision);
                return (output, child.wait().await);
            }
            // What it has left behind would hold stderr.
            let status = child.wait().await;
            (output, status)
        };
        let (written, (output, status), stderr) =
            tokio::join!(write, read, bounded::read_start(stderr, STDERR_SHOWN));
        let () = written;
        self.result(output, status, &stderr)
    }

    fn result(
        &self,
        output: io::Result<Option<Vec<u8>>>,
        status: io::Result<std::process::ExitStatus>,
        stderr: &[u8],
    ) -> Result<Value, ToolError> {
        let (Ok(output), Ok(status)) = (output, status) else {
            return Err(ToolError::Unavailable);
        };
        let output = output.ok_or(ToolError::ResultTooLarge(LARGEST))?;
        if !status.success() {
            let code = status.code().unwrap_or_default();
            self.tell(&format!("failed with exit code {code}: {}", lines(stderr)));
            // Before it is cut: a part of a secret is not found.
            let said = self.secrets.hide(&String::from_utf8_lossy(&output));
            let said = first_line(&said);
            return Err(ToolError::Failed(match said.is_empty() {
                true => format!("the tool failed with exit code {code}"),
                false => format!("the tool failed with exit code {code}: {said}"),
            }));
        }
        let text = String::from_utf8(output)
            .map_err(|_| ToolError::InvalidResult("it is not UTF-8".into()))?;
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.trim_end().into())))
    }

    fn tell(&self, what: &str) {
        (self.notify)(&format!("tool `{}` {what}", self.spec.name));
    }
}

/// What a tool wrote to stderr, in one line.
fn lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    match text.trim() {
        "" => "it wrote nothing to stderr".to_owned(),
        text => clean(text, STDERR_SHOWN),
    }
}

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: Arguments) -> Result<Value, ToolError> {
        let run = self.run(arguments);
        match self.spec.timeout {
            None => run.await,
            Some(after) => match tokio::time::timeout(after, run).await {
                Ok(result) => result,
                Err(_) => {
                    self.tell(&format!("did not end within {} s", after.as_secs_f64()));
                    Err(ToolError::TimedOut(after))
                }
            },
        }
    }
}

impl fmt::Debug for CommandTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandTool")
            .field("spec", &self.spec)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}
