//! The six tools as clients see them. A schema has one type for each field, without `null`, references and
//! alternatives: some providers of models refuse those.

use std::sync::Arc;
use std::time::Duration;

use brig_sandbox::Language;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::arguments::SessionName;
use crate::describe::{self, seconds};
use crate::{Setup, files};

/// How long a call may run unless it asks for another time. Clients have timeouts of their own, of about a
/// minute.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a call may run: by default, and at most.
pub(crate) fn timeouts(setup: &Setup) -> (Duration, Duration) {
    let most = setup.config.limits.timeout.value;
    (most.min(DEFAULT_TIMEOUT), most)
}

/// All tools, sorted by name.
pub(crate) fn all(setup: &Setup) -> Vec<Tool> {
    let texts = Texts::new(setup);
    vec![
        end_session(),
        list_files(),
        read_file(),
        run_code(&texts),
        run_command(&texts),
        write_file(),
    ]
}

/// What several descriptions have in common.
struct Texts {
    sandbox: String,
    session: String,
    timeout: Value,
    languages: Vec<Language>,
    reaches_hosts: bool,
}

impl Texts {
    fn new(setup: &Setup) -> Self {
        let (default, most) = timeouts(setup);
        let idle = setup.idle.as_secs() / 60;
        Self {
            sandbox: describe::sandbox(&setup.plan),
            session: format!(
                "With `session`, files in /workspace stay for later calls with the same name; a session \
                 ends after {idle} minutes without a call. Without it, nothing is kept. Processes end \
                 with their call: nothing runs in the background."
            ),
            timeout: json!({
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": most.as_secs_f64(),
                "description": format!(
                    "Seconds until the call is ended. Default {}, at most {}.",
                    seconds(default), seconds(most)
                ),
            }),
            languages: (setup.sandbox.backend().languages(&setup.plan))
                .unwrap_or_else(|| Language::ALL.to_vec()),
            reaches_hosts: setup.plan.network().is_on(),
        }
    }

    fn runs(&self) -> ToolAnnotations {
        ToolAnnotations::new()
            .read_only(false)
            .destructive(false)
            .idempotent(false)
            .open_world(self.reaches_hosts)
    }
}

fn run_code(texts: &Texts) -> Tool {
    let description = format!(
        "Run source code in a sandbox, in a fresh interpreter. {} {} Save figures as PNG, JPEG, GIF or \
         WebP files in /workspace: they come back as images. A result with `code` and `retryable: \
         false` will not change: do not retry it.",
        texts.sandbox, texts.session
    );
    // Without Python there is no default that works.
    let (required, default) = match texts.languages.contains(&Language::Python) {
        true => (&["code"][..], "Default python."),
        false => (&["code", "language"][..], "The language of the code."),
    };
    let input = object(
        json!({
            "code": {"type": "string", "description": "The source code."},
            "language": {"type": "string", "enum": texts.languages, "description": default},
            "session": session(),
            "timeout": texts.timeout,
        }),
        required,
    );
    tool("run_code", "Run code", description, input, run_output()).annotate(texts.runs())
}

fn run_command(texts: &Texts) -> Tool {
    let description = format!(
        "Run one command in a sandbox: `command`, a line for bash, or `argv`, a program with its \
         arguments and no shell. {} {}",
        texts.sandbox, texts.session
    );
    let input = object(
        json!({
            "command": {"type": "string", "description": "A line for bash."},
            "argv": {
                "type": "array",
                "items": {"type": "string"},
                "description": "A program and its arguments, in place of `command`.",
            },
            "session": session(),
            "cwd": {"type": "string", "description": "The directory to run in. Default /workspace."},
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Environment variables to add.",
            },
            "stdin": {"type": "string", "description": "Standard input. Default empty."},
            "timeout": texts.timeout,
        }),
        &[],
    );
    let (name, title) = ("run_command", "Run a command");
    tool(name, title, description, input, run_output()).annotate(texts.runs())
}

fn write_file() -> Tool {
    let input = object(
        json!({
            "session": session(),
            "path": path(),
            "content": {"type": "string", "description": "The text to write."},
            "content_base64": {
                "type": "string",
                "description": "Bytes to write, in place of `content`.",
            },
            "append": {
                "type": "boolean",
                "description": "Add to the end of the file. Default false: replace it.",
            },
        }),
        &["session", "path"],
    );
    let output = output(json!({"path": {"type": "string"}, "bytes": {"type": "integer"}}));
    let description = format!(
        "Write a file into the workspace of a session, which is created if it does not exist, as are the \
         directories above the file. At most {}.",
        describe::size(files::LARGEST)
    );
    let hints = ToolAnnotations::new().read_only(false).destructive(true);
    let hints = hints.idempotent(false).open_world(false);
    tool("write_file", "Write a file", description, input, output).annotate(hints)
}

fn read_file() -> Tool {
    let input = object(
        json!({
            "session": session(),
            "path": path(),
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "The first byte to read. Default 0.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": files::MOST_READ,
                "description": format!("How many bytes to read. Default {}.", files::READ),
            },
        }),
        &["session", "path"],
    );
    let output = output(json!({
        "path": {"type": "string"},
        "size": {"type": "integer"},
        "offset": {"type": "integer"},
        "bytes": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "content": {"type": "string"},
        "content_base64": {"type": "string"},
        "escaped": {"type": "boolean"},
        "image": {"type": "string"},
    }));
    let description = "Read a file of the workspace of a session. Text comes back as text, an image as an image, other \
         bytes as base64. If control characters were made visible in `content`, `escaped` is true and \
         `content_base64` has the exact bytes. Symbolic links are not followed.";
    let hints = ToolAnnotations::new().read_only(true).open_world(false);
    tool("read_file", "Read a file", description, input, output).annotate(hints)
}

fn list_files() -> Tool {
    let input = object(
        json!({
            "session": session(),
            "path": {"type": "string", "description": "A directory below /workspace. Default /workspace."},
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": files::DEEPEST,
                "description": "How many levels to list. Default 1.",
            },
        }),
        &["session"],
    );
    let entry = object(
        json!({
            "path": {"type": "string"},
            "kind": {"type": "string", "enum": ["file", "directory", "link", "other"]},
            "size": {"type": "integer"},
            "escaped": {"type": "boolean"},
        }),
        &["path", "kind", "size"],
    );
    let output = output(json!({
        "entries": {"type": "array", "items": entry},
        "truncated": {"type": "boolean"},
    }));
    let description = format!(
        "List files of the workspace of a session, at most {}. `escaped` marks a name with characters that \
         were made visible: it can't be used as a path.",
        files::MOST_LISTED
    );
    let hints = ToolAnnotations::new().read_only(true).open_world(false);
    tool("list_files", "List files", description, input, output).annotate(hints)
}

fn end_session() -> Tool {
    let input = object(json!({"session": session()}), &["session"]);
    let output = output(json!({"ended": {"type": "boolean"}}));
    let description = "End a session: everything that runs in it is ended, and its files are removed. `ended` \
                       is false if there was no such session.";
    let hints = ToolAnnotations::new().read_only(false).destructive(true);
    let hints = hints.idempotent(true).open_world(false);
    tool("end_session", "End a session", description, input, output).annotate(hints)
}

/// The result of the tools that run something.
fn run_output() -> Value {
    output(json!({
        "exit_code": {"type": "integer"},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "truncated": {"type": "boolean"},
        "stdout_bytes": {"type": "integer"},
        "stderr_bytes": {"type": "integer"},
        "duration_ms": {"type": "integer"},
        "usage": object(json!({
            "cpu_ms": {"type": "integer"},
            "peak_memory_bytes": {"type": "integer"},
        }), &["cpu_ms", "peak_memory_bytes"]),
        "killed": {"type": "string"},
        "denied": {"type": "array", "items": {"type": "object"}},
        "images": {"type": "array", "items": {"type": "string"}},
        "session": {"type": "string"},
        "session_is_new": {"type": "boolean"},
        "execution": {"type": "string"},
    }))
}

fn session() -> Value {
    json!({
        "type": "string",
        "pattern": SessionName::PATTERN,
        "description": "A name of your choice: the first use creates the session.",
    })
}

fn path() -> Value {
    json!({"type": "string", "description": "Below /workspace; relative, or with /workspace in front."})
}

fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The schema of a result. Some clients check it for a call that failed, too, so it has the fields that say
/// why, and requires none.
fn output(mut properties: Value) -> Value {
    let why = [
        ("code", "string"),
        ("message", "string"),
        ("retryable", "boolean"),
        ("rule", "string"),
        ("would_allow", "string"),
        ("execution", "string"),
    ];
    for (name, kind) in why {
        properties[name] = json!({ "type": kind });
    }
    json!({"type": "object", "properties": properties})
}

fn tool(
    name: &'static str,
    title: &str,
    description: impl Into<String>,
    input: Value,
    output: Value,
) -> Tool {
    let schema = |value: Value| -> Arc<JsonObject> {
        match value {
            Value::Object(object) => Arc::new(object),
            _ => Arc::default(),
        }
    };
    Tool::new(name, description.into(), schema(input))
        .with_title(title)
        .with_raw_output_schema(schema(output))
}
