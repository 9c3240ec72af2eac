//! The user's configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brig_hosts::Rule;
use brig_policy::HOSTS;
use brig_reason::ReasonCode;
use brig_schema::{
    Compat, Fault, Field, FieldKind, Format, KeyPath, Node, NodeKind, Object, Position, Problem,
    ProblemLog, Problems, Reader, Value, field_table, nearest, parse, quoted,
};

use crate::defaults::{self, DEFAULT_FIELDS, Defaults, LIMIT_FIELDS};
use crate::error::{Error, Result};
use crate::tools::{self, SERVER_FIELDS, TOOL_FIELDS, ToolSources};

pub(crate) const ALLOWLIST: &str = "sandbox_allowlist";
pub(crate) const BLOCKLIST: &str = "sandbox_blocklist";
pub(crate) const ALIASES: &str = "aliases";
const BACKENDS: &str = "backends";
const DEFAULTS: &str = "defaults";

const FIELDS: &[Field] = &[
    Field::new(
        "sandbox",
        FieldKind::Flag,
        "Whether agents run in a sandbox, unless the flag or the alias sets it. The setting of an \
         agent file counts only if this is not set.",
    )
    .nullable()
    .default("true"),
    Field::new(ALLOWLIST, HOSTS, "Hosts that every sandbox may reach.")
        .nullable()
        .default("[]"),
    Field::new(
        BLOCKLIST,
        HOSTS,
        "Hosts that no sandbox may reach, even if another rule allows them. Without a port: on \
         every port.",
    )
    .nullable()
    .default("[]"),
    Field::new(
        ALIASES,
        FieldKind::Named(ALIAS),
        "Short names for agent files.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        BACKENDS,
        FieldKind::Named(BACKEND),
        "Backends beside the usual one of each kind, such as a second container engine. `--backend \
         KIND:NAME` uses one.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        tools::TOOLS,
        FieldKind::Named(TOOL_FIELDS),
        "Commands of the host that sandboxed code may call as tools, where a policy allows it.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        tools::SERVERS,
        FieldKind::Named(SERVER_FIELDS),
        "MCP servers whose tools sandboxed code may call, where a policy allows it.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        DEFAULTS,
        FieldKind::Object(DEFAULT_FIELDS),
        "What applies to every run and every new session unless a flag says otherwise.",
    )
    .nullable()
    .default("{}"),
];

const BACKEND: &[Field] = &[
    Field::new(
        "kind",
        FieldKind::Name,
        "The kind of backend, such as `docker`.",
    )
    .required(),
    Field::new(
        "options",
        FieldKind::Variables,
        "Its settings, by name. Each kind of backend has its own.",
    )
    .default("{}"),
];

const ALIAS: &[Field] = &[
    Field::new("path", FieldKind::Name, "The agent file.").required(),
    Field::new(
        "sandbox",
        FieldKind::Flag,
        "Whether the agent runs in a sandbox when it is started by this name. `false` needs the user's trust in the file, which `brig alias add` gives.",
    )
    .nullable(),
];

/// A short name for an agent file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    pub path: PathBuf,
    pub sandbox: Option<bool>,
}

/// A backend with a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredBackend {
    pub kind: String,
    /// Only that kind of backend knows what they mean.
    pub options: BTreeMap<String, String>,
}

/// The configuration, read and checked. It never changes; [`crate::Store`] makes a new one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserConfig {
    sandbox: Option<bool>,
    allow: Vec<Rule>,
    block: Vec<Rule>,
    aliases: BTreeMap<String, Alias>,
    backends: BTreeMap<String, ConfiguredBackend>,
    tools: ToolSources,
    defaults: Defaults,
}

impl UserConfig {
    /// Reads a configuration. Unknown keys are warnings.
    pub fn parse(file: &str, text: &[u8]) -> Result<(Self, Vec<Problem>)> {
        let mut log = ProblemLog::new(file);
        let node = parse(text, Format::Yaml, Compat::Strict, &mut log);
        let config = node.and_then(|node| read(&known(node, &mut log), file, &mut log));
        let failed = log.failed();
        let mut problems = log.finish();
        for problem in &mut problems {
            if problem.code != ReasonCode::InputHost {
                problem.code = ReasonCode::ConfigInvalid;
            }
        }
        match config {
            Some(config) if !failed => Ok((config, problems)),
            _ => Err(Error::invalid(file, Problems(problems))),
        }
    }

    /// Whether agents run in a sandbox, if the user sets it.
    pub fn sandbox(&self) -> Option<bool> {
        self.sandbox
    }

    pub fn allow(&self) -> &[Rule] {
        &self.allow
    }

    pub fn block(&self) -> &[Rule] {
        &self.block
    }

    pub fn aliases(&self) -> &BTreeMap<String, Alias> {
        &self.aliases
    }

    pub fn backends(&self) -> &BTreeMap<String, ConfiguredBackend> {
        &self.backends
    }

    /// Tools for all runs, relative to the directory of the file.
    pub fn tools(&self) -> &ToolSources {
        &self.tools
    }

    /// What applies unless a flag says otherwise.
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }
}

/// Without the keys that belong to others, which are named. One that is nearly ours is a mistake:
/// ignoring it could open what should be blocked.
fn known(node: Node, log: &mut ProblemLog) -> Node {
    let Node { at, kind } = node;
    let kind = match kind {
        // An empty file.
        NodeKind::Scalar(Value::Null) => NodeKind::Map(Vec::new()),
        NodeKind::Map(mut pairs) => {
            pairs.retain(|pair| {
                let names = || FIELDS.iter().map(|field| field.name);
                if names().any(|name| name == pair.key) || nearest(&pair.key, names()).is_some() {
                    return true;
                }
                let fault = Fault::new(
                    ReasonCode::ConfigInvalid,
                    format!(
                        "unknown key {}; it is kept, but has no effect",
                        quoted(&pair.key)
                    ),
                );
                log.warning(pair.at, &KeyPath::Root.key(&pair.key), fault);
                false
            });
            NodeKind::Map(pairs)
        }
        other => other,
    };
    Node { at, kind }
}

fn read(node: &Node, file: &str, log: &mut ProblemLog) -> Option<UserConfig> {
    let mut reader = Reader::new(log, Compat::Strict);
    let root = KeyPath::Root;
    let object = reader.object(node, FIELDS, &root)?;
    Some(UserConfig {
        sandbox: reader.flag(&object, "sandbox", &root),
        allow: hosts(&mut reader, &object, ALLOWLIST, &root),
        block: hosts(&mut reader, &object, BLOCKLIST, &root),
        aliases: aliases(&mut reader, &object, &root),
        backends: backends(&mut reader, &object, &root),
        tools: tools::read(&mut reader, &object, &root).beside(Path::new(file)),
        defaults: defaults::read(&mut reader, &object, DEFAULTS, &root),
    })
}

/// A list of hosts. An invalid one is an error with its position.
pub(crate) fn hosts(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    entry: &KeyPath<'_>,
) -> Vec<Rule> {
    let rule = |text: &str| {
        Rule::parse(text).map_err(|error| {
            let fault = Fault::new(ReasonCode::InputHost, error.message());
            match error.hint() {
                Some(fix) => fault.fix(fix),
                None => fault,
            }
        })
    };
    let list = reader.list(object, name, entry, rule).unwrap_or_default();
    list.into_iter().map(|given| given.value).collect()
}

fn aliases(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    root: &KeyPath<'_>,
) -> BTreeMap<String, Alias> {
    let check = |name: &str| {
        check_alias(name).map_err(|error| Fault::new(ReasonCode::InputAlias, error.to_string()))
    };
    let list = root.key(ALIASES);
    let mut aliases = BTreeMap::new();
    for (name, object) in reader.named(object, ALIASES, root, check) {
        let entry = list.key(name);
        let path = reader.text(&object, "path", &entry);
        let sandbox = reader.flag(&object, "sandbox", &entry);
        let Some(path) = path else { continue };
        if !Path::new(&path.value).is_absolute() {
            let fault = Fault::new(ReasonCode::ConfigInvalid, "the path is not absolute")
                .fix("write an absolute path");
            let at = path.at.unwrap_or(Position::START);
            reader.log.error(at, &entry.key("path"), fault);
        }
        let path = path.value.into();
        aliases.insert(name.to_owned(), Alias { path, sandbox });
    }
    aliases
}

fn backends(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    root: &KeyPath<'_>,
) -> BTreeMap<String, ConfiguredBackend> {
    let check = |name: &str| match is_name(name) {
        true => Ok(()),
        false => Err(Fault::new(
            ReasonCode::ConfigInvalid,
            format!("{} is not a valid backend name", quoted(name)),
        )),
    };
    let list = root.key(BACKENDS);
    let mut backends = BTreeMap::new();
    for (name, object) in reader.named(object, BACKENDS, root, check) {
        let entry = list.key(name);
        let kind = reader.text(&object, "kind", &entry);
        let options = reader.variables(&object, "options", &entry).into_iter();
        // Keys are written with `_`, as all others in this file; flags with `-`.
        let options = options.map(|(name, given)| (name.replace('_', "-"), given.value));
        let options = options.collect();
        if let Some(kind) = kind {
            let kind = kind.value;
            backends.insert(name.to_owned(), ConfiguredBackend { kind, options });
        }
    }
    backends
}

/// Whether a text may be the name of an alias. No path looks like one: a path to such a file is
/// written with `./`.
pub fn check_alias(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    Err(Error::Alias(format!(
        "{} is not a valid alias name",
        quoted(name)
    )))
}

pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && name.len() <= 64
}

pub(crate) fn reference() -> String {
    let mut out = field_table("The user's configuration", FIELDS);
    out.push_str(&field_table("`aliases.NAME`", ALIAS));
    out.push_str(&field_table("`backends.NAME`", BACKEND));
    out.push_str(&field_table("`defaults`", DEFAULT_FIELDS));
    out.push_str(&field_table("`limits`", LIMIT_FIELDS));
    out
}
