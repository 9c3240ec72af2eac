//! An agent file: how an agent is run.

use std::path::PathBuf;
use std::sync::Arc;

use brig_hosts::Rule;
use brig_policy::form::{
    Entry, Fault, Field, Kind, Log, Node, NodeKind, Object, Reader, parse, reference_of, schema_of,
};
use brig_policy::{Compat, Document, Format, Problem, Problems, Value};

use crate::error::{Error, Result};
use crate::user::hosts;

const FIELDS: &[Field] = &[
    Field::new(
        "name",
        Kind::Name,
        "Who asks, in records and sessions: letters, digits, `_`, `.` and `-`, a letter or digit first.",
    )
    .required(),
    Field::new(
        "command",
        Kind::Words,
        "The program and its arguments. What follows the agent on the command line is added.",
    )
    .required(),
    Field::new(
        "policy",
        Kind::Policy,
        "What the agent may do. A path counts from the folder of the agent file.",
    )
    .nullable(),
    Field::new("runtime", Kind::Object(RUNTIME), "Where the agent runs.")
        .nullable()
        .default("{}"),
];

const RUNTIME: &[Field] = &[
    Field::new(
        "sandbox",
        Kind::Flag,
        "Whether the agent runs in a sandbox, unless the flag or the alias says so.",
    )
    .nullable(),
    Field::new(
        "backend",
        Kind::Name,
        "The isolation technology, unless a flag names one.",
    )
    .nullable()
    .default("\"native\""),
    Field::new(
        "network_allowlist",
        Kind::Hosts,
        "Hosts that the agent may reach, however its sandbox was turned on.",
    )
    .nullable()
    .default("[]"),
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
}

impl AgentFile {
    /// Reads an agent file. What is wrong with it, or with the policy in it, refuses it.
    pub fn parse(file: &str, text: &[u8]) -> Result<(Self, Vec<Problem>)> {
        let mut log = Log::new(file);
        let mut inner = Vec::new();
        let node = parse(text, Format::of(file), Compat::Strict, &mut log);
        let agent = node.and_then(|node| read(&node, file, &mut log, &mut inner));
        let failed = log.failed();
        let mut problems = log.finish();
        for problem in &mut problems {
            if problem.code != "input.host" {
                problem.code = "agent.invalid";
            }
        }
        problems.append(&mut inner);
        problems.sort_by_key(|problem| problem.at);
        match agent {
            Some(agent) if !failed => Ok((agent, problems)),
            _ => Err(Error::unsound(file, Problems(problems))),
        }
    }
}

fn read(node: &Node, file: &str, log: &mut Log, inner: &mut Vec<Problem>) -> Option<AgentFile> {
    let compat = Compat::Strict;
    let mut reader = Reader { log, compat };
    let root = Entry::Root;
    let object = reader.object(node, FIELDS, &root)?;
    let name = reader.text(&object, "name", &root);
    if let Some(name) = &name
        && !is_name(&name.value)
    {
        let fault = Fault::new("agent.invalid", "this can't be the name of an agent").fix(
            "a name is a letter or digit, then letters, digits, `_`, `.` and `-`, at most 128 in all",
        );
        let at = name.at.unwrap_or(node.at);
        reader.log.error(at, &root.key("name"), fault);
    }
    let command = command(&mut reader, &object, &root);
    let policy = policy(&mut reader, &object, file, &root, inner);
    let runtime = reader.child(&object, "runtime", &root);
    let entry = root.key("runtime");
    let (mut sandbox, mut backend, mut allow) = (None, None, Vec::new());
    if let Some(runtime) = &runtime {
        sandbox = reader.flag(runtime, "sandbox", &entry);
        backend = reader.text(runtime, "backend", &entry);
        allow = hosts(&mut reader, runtime, "network_allowlist", &entry);
    }
    Some(AgentFile {
        name: name?.value,
        command,
        policy,
        sandbox,
        backend: backend.map(|backend| backend.value),
        network_allowlist: allow,
    })
}

fn command(reader: &mut Reader<'_>, object: &Object<'_>, root: &Entry<'_>) -> Vec<String> {
    let word = |word: &str| match word.contains('\0') {
        true => Err(Fault::new("agent.invalid", "holds a NUL character")),
        false => Ok(word.to_owned()),
    };
    let words = reader.list(object, "command", root, word);
    let words: Option<Vec<String>> =
        words.map(|words| words.into_iter().map(|word| word.value).collect());
    if let Some(words) = &words
        && words.first().is_none_or(String::is_empty)
        && !reader.log.failed()
    {
        let fault = Fault::new("agent.invalid", "no program is named")
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
    root: &Entry<'_>,
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
                let fault = Fault::new("agent.invalid", "the policy is not sound");
                reader.log.error(node.at, &root.key("policy"), fault);
                None
            }
        },
        _ => {
            let problem = format!("must be a path or a policy, found {}", node.describe());
            let fault = Fault::new("agent.invalid", problem);
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
    schema_of("Brig agent", "How an agent is run.", FIELDS)
}

pub(crate) fn reference() -> String {
    let mut out = reference_of("The agent file", FIELDS);
    out.push_str(&reference_of("`runtime`", RUNTIME));
    out
}
