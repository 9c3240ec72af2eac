//! Tools in the user's configuration and in agent files: commands of the host, and MCP servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_reason::ReasonCode;
use brig_schema::{Fault, Field, FieldKind, KeyPath, Object, Position, Reader, quoted};

use crate::agent::{program, variable};
use crate::defaults::quantity;
use crate::quantity;

pub(crate) const TOOLS: &str = "tools";
pub(crate) const SERVERS: &str = "mcp_servers";

const COMMAND: &str = "The program and its arguments; no shell. A path is relative to the directory of the file, where it \
                       starts.";
const ENV: Field = Field::new(
    "env",
    FieldKind::Variables,
    "Environment variables that it gets beside the usual ones.",
)
.nullable()
.default("{}");
const SECRETS: Field = Field::new(
    "secrets",
    FieldKind::List {
        items: "names of variables",
        pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
    },
    "Variables that it gets from your environment.",
)
.nullable()
.default("[]");
const TIMEOUT: Field = Field::new(
    "timeout",
    FieldKind::Name,
    "How long one call may take: `500ms`, `10s`, `2m`.",
)
.nullable();

pub(crate) const TOOL_FIELDS: &[Field] = &[
    Field::new("command", FieldKind::Words, COMMAND).required(),
    Field::new(
        "description",
        FieldKind::Text,
        "What it does, for people and models.",
    )
    .nullable(),
    Field::new(
        "input_schema",
        FieldKind::Any,
        "JSON Schema of the arguments, an object.",
    )
    .nullable()
    .default("{\"type\": \"object\"}"),
    Field::new(
        "output_schema",
        FieldKind::Any,
        "JSON Schema of the result.",
    )
    .nullable(),
    TIMEOUT,
    ENV,
    SECRETS,
];

pub(crate) const SERVER_FIELDS: &[Field] = &[
    Field::new("command", FieldKind::Words, COMMAND).nullable(),
    Field::new(
        "url",
        FieldKind::Name,
        "Where it is, instead of `command`: `https://…`, with streamable HTTP.",
    )
    .nullable(),
    Field::new(
        "headers",
        FieldKind::List {
            items: "headers",
            pattern: "^[A-Za-z0-9-]+: .*$",
        },
        "Headers of every request to `url`, as `NAME: VALUE`. `$NAME` in a value is a variable of your \
         environment.",
    )
    .nullable()
    .default("[]"),
    Field::new(
        "tools",
        FieldKind::List {
            items: "tools",
            pattern: "^.+$",
        },
        "Its tools that are registered, as `TOOL`, or `TOOL=NAME` to rename one. All if it is missing.",
    )
    .nullable(),
    TIMEOUT,
    Field::new(
        "start_timeout",
        FieldKind::Name,
        "How long it may take until its tools are known.",
    )
    .nullable()
    .default("\"60s\""),
    ENV,
    SECRETS,
];

/// A command of the host that is a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredTool {
    /// At least the program.
    pub command: Vec<String>,
    /// What it does.
    pub description: String,
    /// JSON Schema.
    pub input_schema: Option<serde_json::Value>,
    /// JSON Schema.
    pub output_schema: Option<serde_json::Value>,
    /// Of one call.
    pub timeout: Option<Duration>,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Names of variables.
    pub secrets: Vec<String>,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredServer {
    /// How to reach it.
    pub endpoint: ConfiguredEndpoint,
    /// Tools, and their names here. All of them if it is empty.
    pub tools: Vec<(String, String)>,
    /// Of one call.
    pub timeout: Option<Duration>,
    /// Until its tools are known.
    pub start_timeout: Option<Duration>,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Names of variables.
    pub secrets: Vec<String>,
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredEndpoint {
    /// At least the program.
    Command(Vec<String>),
    /// With headers as they are written.
    Url(String, Vec<(String, String)>),
}

/// Tools and servers of one file, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSources {
    /// Commands of the host.
    pub tools: BTreeMap<String, ConfiguredTool>,
    /// MCP servers.
    pub servers: BTreeMap<String, ConfiguredServer>,
    /// Where relative paths begin.
    pub directory: PathBuf,
}

impl ToolSources {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty()
    }

    pub(crate) fn beside(mut self, file: &Path) -> Self {
        if !self.is_empty() {
            self.directory = file.parent().unwrap_or(Path::new("")).to_owned();
        }
        self
    }

    /// What they start and reach, and what they get, for the user to agree to. Every field is taken apart, so that
    /// a new one is not forgotten here.
    pub(crate) fn asked(&self) -> impl Iterator<Item = String> {
        let tools = self.tools.iter().map(|(name, tool)| {
            let ConfiguredTool {
                command,
                description: _,
                input_schema: _,
                output_schema: _,
                timeout: _,
                env,
                secrets,
            } = tool;
            let words = words(command);
            let gets = gets(env, secrets, &[]);
            format!("runs {words} on the host as the tool `{name}`{gets}")
        });
        let servers = self.servers.iter().map(|(name, server)| {
            let ConfiguredServer {
                endpoint,
                tools: _,
                timeout: _,
                start_timeout: _,
                env,
                secrets,
            } = server;
            match endpoint {
                ConfiguredEndpoint::Command(command) => {
                    let words = words(command);
                    let gets = gets(env, secrets, &[]);
                    format!("runs {words} on the host as the MCP server `{name}`{gets}")
                }
                ConfiguredEndpoint::Url(url, headers) => {
                    let gets = gets(env, secrets, headers);
                    format!("uses the MCP server {}{gets}", shown(url))
                }
            }
        });
        tools.chain(servers)
    }
}

/// Words of a command, so that nothing in one of them can be taken for another.
fn words(command: &[String]) -> String {
    let words: Vec<_> = command.iter().map(|word| shown(word)).collect();
    words.join(" ")
}

fn shown(text: &str) -> String {
    format!(
        "`{}`",
        text.escape_default().to_string().replace('`', "\\x60")
    )
}

/// Variables and headers. In a header, `$NAME` is a variable of the user.
fn gets(env: &[(String, String)], secrets: &[String], headers: &[(String, String)]) -> String {
    let set = env
        .iter()
        .map(|(name, value)| format!("the variable {}", shown(&format!("{name}={value}"))));
    let taken = secrets
        .iter()
        .map(|name| format!("`{name}` of your environment"));
    let sent = headers
        .iter()
        .map(|(name, value)| format!("the header {}", shown(&format!("{name}: {value}"))));
    let all: Vec<_> = set.chain(taken).chain(sent).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" with {}", all.join(", ")),
    }
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    root: &KeyPath<'_>,
) -> ToolSources {
    let mut sources = ToolSources::default();
    let list = root.key(TOOLS);
    for (name, object) in reader.named(object, TOOLS, root, check_tool) {
        sources
            .tools
            .insert(name.to_owned(), tool(reader, &object, &list.key(name)));
    }
    let list = root.key(SERVERS);
    for (name, object) in reader.named(object, SERVERS, root, check_server) {
        if let Some(server) = server(reader, &object, &list.key(name)) {
            sources.servers.insert(name.to_owned(), server);
        }
    }
    sources
}

fn tool(reader: &mut Reader<'_>, object: &Object<'_>, entry: &KeyPath<'_>) -> ConfiguredTool {
    let (env, secrets) = variables(reader, object, entry);
    let description = reader.text(object, "description", entry);
    ConfiguredTool {
        command: program(reader, object, entry),
        description: description.map(|text| text.value).unwrap_or_default(),
        input_schema: json(reader, object, "input_schema", entry),
        output_schema: json(reader, object, "output_schema", entry),
        timeout: quantity(reader, object, "timeout", entry, quantity::duration),
        env,
        secrets,
    }
}

fn server(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    entry: &KeyPath<'_>,
) -> Option<ConfiguredServer> {
    let url = reader.text(object, "url", entry);
    let headers = reader
        .list(object, "headers", entry, header)
        .unwrap_or_default();
    let headers = headers
        .into_iter()
        .map(|given| given.value)
        .collect::<Vec<_>>();
    let endpoint = match (url, object.has("command")) {
        (Some(url), false) => ConfiguredEndpoint::Url(url.value, headers),
        (None, true) if headers.is_empty() => {
            ConfiguredEndpoint::Command(program(reader, object, entry))
        }
        _ => {
            let fault =
                invalid("a server has either a `command`, or a `url` and perhaps `headers`");
            reader.log.error(object.at, entry, fault);
            return None;
        }
    };
    let tools = reader
        .list(object, "tools", entry, renamed)
        .unwrap_or_default();
    let (env, secrets) = variables(reader, object, entry);
    Some(ConfiguredServer {
        endpoint,
        tools: tools.into_iter().map(|given| given.value).collect(),
        timeout: quantity(reader, object, "timeout", entry, quantity::duration),
        start_timeout: quantity(reader, object, "start_timeout", entry, quantity::duration),
        env,
        secrets,
    })
}

/// `TOOL` or `TOOL=NAME`.
fn renamed(text: &str) -> Result<(String, String), Fault> {
    let (tool, name) = text.split_once('=').unwrap_or((text, text));
    check_tool(name)?;
    Ok((tool.to_owned(), name.to_owned()))
}

fn header(text: &str) -> Result<(String, String), Fault> {
    match text.split_once(": ") {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim().to_owned())),
        _ => Err(invalid("a header is `NAME: VALUE`")),
    }
}

type Variables = (Vec<(String, String)>, Vec<String>);

fn variables(reader: &mut Reader<'_>, object: &Object<'_>, entry: &KeyPath<'_>) -> Variables {
    let env = reader.variables(object, "env", entry).into_iter();
    let env = env.map(|(name, given)| (name, given.value)).collect();
    let name = |text: &str| variable(text).map_err(invalid);
    let secrets = reader
        .list(object, "secrets", entry, name)
        .unwrap_or_default();
    (env, secrets.into_iter().map(|given| given.value).collect())
}

/// A value as JSON. Schemas are maps.
fn json(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    entry: &KeyPath<'_>,
) -> Option<serde_json::Value> {
    let given = reader.any(object, name)?;
    let value = serde_json::from_str(&given.value.to_pretty_json());
    match value {
        Ok(value @ serde_json::Value::Object(_)) => Some(value),
        _ => {
            let at = given.at.unwrap_or(Position::START);
            reader
                .log
                .error(at, &entry.key(name), invalid("a schema is a map"));
            None
        }
    }
}

/// What `brig_tools::ToolName` takes.
fn check_tool(name: &str) -> Result<(), Fault> {
    let first = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    match first && name.len() <= 128 && name.bytes().all(allowed) {
        true => Ok(()),
        false => Err(
            invalid(format!("{} is not a valid tool name", quoted(name))).fix(
                "a name is an ASCII letter or `_`, then letters, digits, `_`, `-`, `.` and `/`",
            ),
        ),
    }
}

fn check_server(name: &str) -> Result<(), Fault> {
    match crate::user::is_name(name) {
        true => Ok(()),
        false => Err(invalid(format!(
            "{} is not a valid server name",
            quoted(name)
        ))),
    }
}

fn invalid(problem: impl Into<String>) -> Fault {
    Fault::new(ReasonCode::ConfigInvalid, problem)
}
