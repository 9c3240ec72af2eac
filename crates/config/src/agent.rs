//! An agent file: how an agent is run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_hosts::Rule;
use brig_policy::{Document, HOSTS};
use brig_reason::ReasonCode;
use brig_schema::{
    Compat, Fault, Field, FieldKind, Format, KeyPath, Node, NodeKind, Object, Problem, ProblemLog,
    Problems, Reader, Value, field_table, json_schema, parse,
};

use crate::defaults::{self, LIMIT_FIELDS, SetLimits};
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::tools::{self, SERVER_FIELDS, TOOL_FIELDS, ToolSources};
use crate::user::hosts;

const FIELDS: &[Field] = &[
    Field::new(
        "name",
        FieldKind::Name,
        "The id of the agent in records and sessions: letters, digits, `_`, `.` and `-`, a letter \
         or digit first.",
    )
    .required(),
    Field::new(
        "command",
        FieldKind::Words,
        "The program and its arguments. Arguments after the agent on the command line are \
         appended.",
    )
    .required(),
    Field::new(
        "policy",
        FieldKind::PathOrMap {
            map: "a [policy](policy.md)",
        },
        "What the agent may do. A path is relative to the directory of the agent file.",
    )
    .nullable(),
    Field::new(
        "runtime",
        FieldKind::Object(RUNTIME),
        "Where the agent runs.",
    )
    .nullable()
    .default("{}"),
];

const RUNTIME: &[Field] = &[
    Field::new(
        "sandbox",
        FieldKind::Flag,
        "Whether the agent runs in a sandbox, unless the flag, the alias or the user's \
         configuration sets it. `false` needs the user's trust in the file.",
    )
    .nullable(),
    Field::new(
        "backend",
        FieldKind::Name,
        "The backend, unless a flag or the user's configuration names one. A backend other than the \
         default needs the user's trust in the file.",
    )
    .nullable()
    .default("\"native\""),
    Field::new(
        "network_allowlist",
        HOSTS,
        "Hosts that the agent may reach, no matter what turned its sandbox on. Addresses that are \
         not public need the user's trust in the file.",
    )
    .nullable()
    .default("[]"),
    Field::new(
        "mounts",
        FieldKind::List {
            items: "mounts",
            pattern: "^.+:/.*$",
        },
        "Host files and directories that the agent sees: `SRC:DST`, read-only unless `:rw` follows. SRC \
         is relative to the directory of the agent file. They need the user's trust in the file.",
    )
    .nullable()
    .default("[]"),
    Field::new(
        "env",
        FieldKind::Variables,
        "Environment variables of the agent. Flags override them.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        "secrets",
        FieldKind::List {
            items: "names of variables",
            pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
        },
        "Variables that the agent gets from the environment of the user who runs it. They need \
         the user's trust in the file.",
    )
    .nullable()
    .default("[]"),
    Field::new(
        tools::TOOLS,
        FieldKind::Named(TOOL_FIELDS),
        "Commands of the host that the agent may call as tools. They need the user's trust in the file.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        tools::SERVERS,
        FieldKind::Named(SERVER_FIELDS),
        "MCP servers whose tools the agent may call. They need the user's trust in the file.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        "limits",
        FieldKind::Object(LIMIT_FIELDS),
        "Limits, unless flags set them. A limit that is higher than it would be without the file needs \
         the user's trust in the file.",
    )
    .nullable()
    .default("{}"),
];

/// Where the policy of an agent is.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// As it is written.
    Path(PathBuf),
    Inline(Arc<Document>),
}

/// An agent file, read and checked.
#[derive(Clone, Debug)]
pub struct AgentFile {
    pub name: String,
    /// At least the program.
    pub command: Vec<String>,
    pub policy: Option<PolicySource>,
    pub sandbox: Option<bool>,
    pub backend: Option<String>,
    pub network_allowlist: Vec<Rule>,
    /// As they are written.
    pub mounts: Vec<Mount>,
    pub env: Vec<(String, String)>,
    /// Names of variables.
    pub secrets: Vec<String>,
    pub limits: SetLimits,
    /// Relative to the directory of the file.
    pub tools: ToolSources,
}

impl AgentFile {
    /// Reads an agent file. What is wrong with it, or with the policy in it, refuses it.
    pub fn parse(file: &str, text: &[u8]) -> Result<(Self, Vec<Problem>)> {
        let mut log = ProblemLog::new(file);
        let mut inner = Vec::new();
        let node = parse(text, Format::of(file), Compat::Strict, &mut log);
        let agent = node.and_then(|node| read(&node, file, &mut log, &mut inner));
        let failed = log.failed();
        let mut problems = log.finish();
        for problem in &mut problems {
            if problem.code != ReasonCode::InputHost {
                problem.code = ReasonCode::AgentInvalid;
            }
        }
        problems.append(&mut inner);
        problems.sort_by_key(|problem| problem.at);
        match agent {
            Some(agent) if !failed => Ok((agent, problems)),
            _ => Err(Error::invalid(file, Problems(problems))),
        }
    }
}

fn read(
    node: &Node,
    file: &str,
    log: &mut ProblemLog,
    inner: &mut Vec<Problem>,
) -> Option<AgentFile> {
    let mut reader = Reader::new(log, Compat::Strict);
    let root = KeyPath::Root;
    let object = reader.object(node, FIELDS, &root)?;
    let name = reader.text(&object, "name", &root);
    if let Some(name) = &name
        && !is_name(&name.value)
    {
        let fault = Fault::new(ReasonCode::AgentInvalid, "this is not a valid agent name").fix(
            "a name is a letter or digit, then letters, digits, `_`, `.` and `-`, at most 128 in all",
        );
        let at = name.at.unwrap_or(node.at);
        reader.log.error(at, &root.key("name"), fault);
    }
    let command = program(&mut reader, &object, &root);
    let policy = policy(&mut reader, &object, file, &root, inner);
    let runtime = reader.child(&object, "runtime", &root);
    let entry = root.key("runtime");
    let mut agent = AgentFile {
        // A file without one is refused, with all its other problems.
        name: name.map(|name| name.value).unwrap_or_default(),
        command,
        policy,
        sandbox: None,
        backend: None,
        network_allowlist: Vec::new(),
        mounts: Vec::new(),
        env: Vec::new(),
        secrets: Vec::new(),
        limits: SetLimits::default(),
        tools: ToolSources::default(),
    };
    if let Some(runtime) = &runtime {
        agent.sandbox = reader.flag(runtime, "sandbox", &entry);
        let backend = reader.text(runtime, "backend", &entry);
        agent.backend = backend.map(|backend| backend.value);
        agent.network_allowlist = hosts(&mut reader, runtime, "network_allowlist", &entry);
        agent.mounts = list(&mut reader, runtime, "mounts", &entry, Mount::parse);
        agent.secrets = list(&mut reader, runtime, "secrets", &entry, variable);
        agent.tools = tools::read(&mut reader, runtime, &entry).beside(Path::new(file));
        agent.limits = defaults::limits(&mut reader, runtime, "limits", &entry);
        let env = reader.variables(runtime, "env", &entry).into_iter();
        agent.env = env.map(|(name, given)| (name, given.value)).collect();
    }
    Some(agent)
}

/// A list whose items have a syntax of their own.
fn list<T>(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    entry: &KeyPath<'_>,
    parse: fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let item = |text: &str| {
        let parsed = parse(text);
        parsed.map_err(|problem| Fault::new(ReasonCode::AgentInvalid, problem))
    };
    let items = reader.list(object, name, entry, item).unwrap_or_default();
    items.into_iter().map(|given| given.value).collect()
}

/// The name of a variable.
pub(crate) fn variable(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let first = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    match first && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        true => Ok(text.to_owned()),
        false => Err("this is not the name of a variable".into()),
    }
}

/// The field `command`.
pub(crate) fn program(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    root: &KeyPath<'_>,
) -> Vec<String> {
    let word = |word: &str| match word.contains('\0') {
        true => Err(Fault::new(
            ReasonCode::AgentInvalid,
            "contains a NUL character",
        )),
        false => Ok(word.to_owned()),
    };
    let words = reader.list(object, "command", root, word);
    let words: Option<Vec<String>> =
        words.map(|words| words.into_iter().map(|word| word.value).collect());
    if let Some(words) = &words
        && words.first().is_none_or(String::is_empty)
        && !reader.log.failed()
    {
        let fault = Fault::new(ReasonCode::AgentInvalid, "no program given")
            .fix("write a list: [python3, agent.py]");
        let at = reader
            .node(object, "command")
            .map_or(object.at, |node| node.at);
        reader.log.error(at, &root.key("command"), fault);
    }
    words.unwrap_or_default()
}

fn policy(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    file: &str,
    root: &KeyPath<'_>,
    inner: &mut Vec<Problem>,
) -> Option<PolicySource> {
    let node = reader.node(object, "policy")?;
    match &node.kind {
        NodeKind::Scalar(Value::Text(path)) if !path.is_empty() => {
            Some(PolicySource::Path(path.into()))
        }
        NodeKind::Map(_) => match Document::inline(file, node) {
            Ok(loaded) => {
                inner.extend(loaded.warnings);
                Some(PolicySource::Inline(loaded.document))
            }
            Err(problems) => {
                inner.extend(problems.0);
                let fault = Fault::new(ReasonCode::AgentInvalid, "the policy is invalid");
                reader.log.error(node.at, &root.key("policy"), fault);
                None
            }
        },
        _ => {
            let problem = format!("must be a path or a policy, found {}", node.describe());
            let fault = Fault::new(ReasonCode::AgentInvalid, problem);
            reader.log.error(node.at, &root.key("policy"), fault);
            None
        }
    }
}

/// What the sandbox takes as the id of an agent.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 128
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && (bytes.iter()).all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

pub(crate) fn schema() -> String {
    json_schema("Brig agent", "How an agent is run.", FIELDS)
}

pub(crate) fn reference() -> String {
    let mut out = field_table("The agent file", FIELDS);
    out.push_str(&field_table("`runtime`", RUNTIME));
    out.push_str(&field_table("`tools.NAME`", TOOL_FIELDS));
    out.push_str(&field_table("`mcp_servers.NAME`", SERVER_FIELDS));
    out
}
