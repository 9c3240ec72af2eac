//! The answer to an execution that took place.

use std::time::Duration;

use brig_sandbox::{KillReason, Report};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Resource};
use serde_json::{Value, json};

use crate::capture::Capture;
use crate::error::{Recorded, ToolError};
use crate::images::Image;
use crate::{resources, text};

/// What is known when an execution has ended.
#[derive(Debug)]
pub(crate) struct Finished<'a> {
    pub report: &'a Report,
    pub stdout: Capture,
    pub stderr: Capture,
    pub images: &'a [Image],
    /// What it was denied: a list of objects.
    pub denied: Value,
    /// The name of the session, and whether it is new.
    pub session: Option<(String, bool)>,
    /// How long a session is kept that is not used.
    pub idle: Duration,
}

impl Finished<'_> {
    pub(crate) fn result(mut self) -> CallToolResult {
        let outcome = &self.report.outcome;
        let stdout = self.stdout.text(outcome.stdout.total);
        let stderr = self.stderr.text(outcome.stderr.total);
        let cut = [
            ("stdout", self.stdout.is_truncated(outcome.stdout.total)),
            ("stderr", self.stderr.is_truncated(outcome.stderr.total)),
        ];
        let stopped = outcome
            .killed
            .as_ref()
            .map(|reason| stopped(reason, self.report));
        let mut content = vec![ContentBlock::text(self.summary(
            &stdout,
            &stderr,
            stopped.as_ref(),
        ))];
        content.extend(self.images.iter().map(Image::content));
        let streams = cut
            .iter()
            .filter(|(_, cut)| *cut)
            .map(|(stream, _)| *stream);
        content.extend(streams.map(|stream| ContentBlock::resource_link(self.whole(stream))));
        let truncated = cut.iter().any(|(_, cut)| *cut);
        let mut object = self.object(stdout, stderr, truncated);
        if let (Some(error), Some(fields)) = (&stopped, object.as_object_mut())
            && let Value::Object(why) = error.fields()
        {
            fields.extend(why);
        }
        let mut result = match stopped {
            Some(_) => CallToolResult::error(content),
            None => CallToolResult::success(content),
        };
        result.structured_content = Some(object);
        result.meta = Some(self.meta());
        result
    }

    fn object(&self, stdout: String, stderr: String, truncated: bool) -> Value {
        let outcome = &self.report.outcome;
        let paths: Vec<&str> = self
            .images
            .iter()
            .map(|image| image.path.as_str())
            .collect();
        let mut object = json!({
            "exit_code": outcome.exit_code,
            "stdout": stdout,
            "stderr": stderr,
            "truncated": truncated,
            "stdout_bytes": outcome.stdout.total,
            "stderr_bytes": outcome.stderr.total,
            "duration_ms": milliseconds(outcome.duration),
            "usage": {
                "cpu_ms": milliseconds(outcome.usage.cpu),
                "peak_memory_bytes": outcome.usage.peak_memory_bytes,
            },
            "denied": self.denied,
            "images": paths,
            "execution": self.report.execution_id,
        });
        if let Some(reason) = &outcome.killed {
            object["killed"] = reason.name().into();
        }
        if let Some((name, is_new)) = &self.session {
            object["session"] = name.as_str().into();
            object["session_is_new"] = (*is_new).into();
        }
        object
    }

    /// What a model needs if it sees only text.
    fn summary(&self, stdout: &str, stderr: &str, stopped: Option<&ToolError>) -> String {
        let mut parts = Vec::new();
        if !stdout.is_empty() {
            parts.push(stdout.trim_end_matches('\n').to_owned());
        }
        if !stderr.is_empty() {
            parts.push(format!("[stderr]\n{}", stderr.trim_end_matches('\n')));
        }
        match (stopped, self.report.outcome.exit_code) {
            (Some(error), _) => parts.push(format!("[ended by Brig] {}", error.sentence())),
            (None, 0) if !parts.is_empty() => {}
            (None, code) => parts.push(format!("[exit code {code}]")),
        }
        for denied in self.denied.as_array().into_iter().flatten() {
            let field = |name: &str| text::line(denied[name].as_str().unwrap_or_default());
            parts.push(format!(
                "[denied by Brig, do not retry] {} {}: {} ({})",
                field("kind"),
                field("what"),
                field("reason"),
                field("code")
            ));
        }
        if let Some((name, true)) = &self.session {
            let idle = crate::describe::seconds(self.idle);
            parts.push(format!(
                "[session {name} is new: it had no files, and ends after {idle} without a call]"
            ));
        }
        parts.join("\n")
    }

    /// Where all of a stream is that was kept.
    fn whole(&self, stream: &str) -> Resource {
        let id = &self.report.execution_id;
        Resource::new(
            resources::output_uri(id, stream),
            format!("{stream} of {id}"),
        )
        .with_description(format!(
            "{stream} from its beginning, as far as it was kept"
        ))
    }

    fn meta(&self) -> MetaObject {
        let agent = self.report.agent_id.to_string();
        let mut meta = recorded(self.report).meta();
        meta.0.insert("io.brig/agent".to_owned(), agent.into());
        meta
    }
}

fn recorded(report: &Report) -> Recorded {
    Recorded {
        execution: report.execution_id.to_string(),
        receipt: report.receipt.clone(),
    }
}

/// Why Brig ended it. The same would happen again, unless somebody else ended it.
fn stopped(reason: &KillReason, report: &Report) -> ToolError {
    use brig_reason::ReasonCode;
    let (code, message) = match reason {
        KillReason::Timeout { limit_ms } => (
            ReasonCode::RunTimeout,
            format!("it ran longer than {} s", *limit_ms as f64 / 1000.0),
        ),
        KillReason::Memory { limit_bytes, .. } => (
            ReasonCode::RunMemory,
            format!(
                "it used more than {} of memory",
                crate::describe::size(*limit_bytes)
            ),
        ),
        KillReason::Processes { limit } => (
            ReasonCode::RunProcesses,
            format!("it started more than {limit} processes"),
        ),
        KillReason::Disk { limit_bytes } => (
            ReasonCode::RunDisk,
            format!(
                "it wrote more than {} to the disk",
                crate::describe::size(*limit_bytes)
            ),
        ),
        KillReason::Output { limit_bytes } => (
            ReasonCode::RunOutput,
            format!(
                "it wrote more than {} of output",
                crate::describe::size(*limit_bytes)
            ),
        ),
        KillReason::Unobserved { .. } => (
            ReasonCode::RunUnobserved,
            "its sandbox stopped reporting what it uses".into(),
        ),
        KillReason::Cancelled => (ReasonCode::RunCancelled, "it was cancelled".into()),
        _ => (ReasonCode::RunDestroyed, "its session was ended".into()),
    };
    let mut error = ToolError::new(code, message);
    error.retryable = matches!(
        reason,
        KillReason::Cancelled | KillReason::Destroyed | KillReason::Unobserved { .. }
    );
    error.recorded = Some(Box::new(recorded(report)));
    error
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
