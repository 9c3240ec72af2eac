//! The user's configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brig_hosts::Rule;
use brig_policy::form::{
    Entry, Fault, Field, Kind, Log, Node, NodeKind, Object, Reader, nearest, parse, quoted,
    reference_of,
};
use brig_policy::{Compat, Format, Position, Problem, Problems};

use crate::error::{Error, Result};

pub(crate) const ALLOWLIST: &str = "sandbox_allowlist";
pub(crate) const BLOCKLIST: &str = "sandbox_blocklist";
pub(crate) const ALIASES: &str = "aliases";

const FIELDS: &[Field] = &[
    Field::new(
        "sandbox",
        Kind::Flag,
        "Whether agents run in a sandbox, unless the flag, the alias or the agent file says so.",
    )
    .nullable()
    .default("true"),
    Field::new(
        ALLOWLIST,
        Kind::Hosts,
        "Hosts that every sandbox may reach.",
    )
    .nullable()
    .default("[]"),
    Field::new(
        BLOCKLIST,
        Kind::Hosts,
        "Hosts that no sandbox may reach, whoever allows them. Without a port: on every port.",
    )
    .nullable()
    .default("[]"),
    Field::new(ALIASES, Kind::Named(ALIAS), "Short names for agent files.")
        .nullable()
        .default("{}"),
];

const ALIAS: &[Field] = &[
    Field::new("path", Kind::Name, "The agent file.").required(),
    Field::new(
        "sandbox",
        Kind::Flag,
        "Whether the agent runs in a sandbox when it is called by this name.",
    )
    .nullable(),
];

/// A short name for an agent file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    pub path: PathBuf,
    pub sandbox: Option<bool>,
}

/// The configuration, read and checked. It never changes; [`crate::Store`] makes a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserConfig {
    sandbox: Option<bool>,
    allow: Vec<Rule>,
    block: Vec<Rule>,
    aliases: BTreeMap<String, Alias>,
}

impl UserConfig {
    /// Reads a configuration. Keys that are not known are no error, but said.
    pub fn parse(file: &str, text: &[u8]) -> Result<(Self, Vec<Problem>)> {
        let mut log = Log::new(file);
        let node = parse(text, Format::Yaml, Compat::Strict, &mut log);
        let config = node.and_then(|node| read(&known(node, &mut log), &mut log));
        let failed = log.failed();
        let mut problems = log.finish();
        for problem in &mut problems {
            if problem.code != "input.host" {
                problem.code = "config.invalid";
            }
        }
        match config {
            Some(config) if !failed => Ok((config, problems)),
            _ => Err(Error::unsound(file, Problems(problems))),
        }
    }

    /// Whether agents run in a sandbox, if the user says anything about it.
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
}

/// Without the keys that belong to others, which are named. One that is nearly ours is a mistake:
/// ignoring it could open what should be blocked.
fn known(node: Node, log: &mut Log) -> Node {
    let Node { at, kind } = node;
    let kind = match kind {
        // An empty file.
        NodeKind::Scalar(brig_policy::Value::Null) => NodeKind::Map(Vec::new()),
        NodeKind::Map(mut pairs) => {
            pairs.retain(|pair| {
                let names = || FIELDS.iter().map(|field| field.name);
                if names().any(|name| name == pair.key) || nearest(&pair.key, names()).is_some() {
                    return true;
                }
                let fault = Fault::new(
                    "config.invalid",
                    format!(
                        "unknown key {}; it is kept, and means nothing",
                        quoted(&pair.key)
                    ),
                );
                log.warning(pair.at, &Entry::Root.key(&pair.key), fault);
                false
            });
            NodeKind::Map(pairs)
        }
        other => other,
    };
    Node { at, kind }
}

fn read(node: &Node, log: &mut Log) -> Option<UserConfig> {
    let compat = Compat::Strict;
    let mut reader = Reader { log, compat };
    let root = Entry::Root;
    let object = reader.object(node, FIELDS, &root)?;
    Some(UserConfig {
        sandbox: reader.flag(&object, "sandbox", &root),
        allow: hosts(&mut reader, &object, ALLOWLIST, &root),
        block: hosts(&mut reader, &object, BLOCKLIST, &root),
        aliases: aliases(&mut reader, &object, &root),
    })
}

/// A list of hosts. What is none is an error that names its place.
pub(crate) fn hosts(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    entry: &Entry<'_>,
) -> Vec<Rule> {
    let rule = |text: &str| {
        Rule::parse(text).map_err(|error| {
            let fault = Fault::new("input.host", error.message());
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
    root: &Entry<'_>,
) -> BTreeMap<String, Alias> {
    let check = |name: &str| {
        check_alias(name).map_err(|error| Fault::new("input.alias", error.to_string()))
    };
    let list = root.key(ALIASES);
    let mut aliases = BTreeMap::new();
    for (name, object) in reader.named(object, ALIASES, root, check) {
        let entry = list.key(name);
        let path = reader.text(&object, "path", &entry);
        let sandbox = reader.flag(&object, "sandbox", &entry);
        let Some(path) = path else { continue };
        if !Path::new(&path.value).is_absolute() {
            let fault = Fault::new("config.invalid", "the path is not absolute")
                .fix("relative to which folder? write the whole path");
            let at = path.at.unwrap_or(Position::START);
            reader.log.error(at, &entry.key("path"), fault);
        }
        let path = path.value.into();
        aliases.insert(name.to_owned(), Alias { path, sandbox });
    }
    aliases
}

/// Whether a text may be the name of an alias. No path looks like one: a path to such a file is
/// written with `./`.
pub fn check_alias(name: &str) -> Result<()> {
    let mut bytes = name.bytes();
    let sound = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && name.len() <= 64;
    if sound {
        return Ok(());
    }
    Err(Error::Alias(format!(
        "{} is no name for an alias",
        quoted(name)
    )))
}

pub(crate) fn reference() -> String {
    let mut out = reference_of("The user's configuration", FIELDS);
    out.push_str(&reference_of("`aliases.NAME`", ALIAS));
    out
}
