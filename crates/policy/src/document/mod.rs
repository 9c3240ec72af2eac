//! The policy document. It can only be had from [`Document::load`], so that what was not checked
//! can't decide anything.

mod canonical;
mod fault;
pub(crate) mod fields;
#[cfg(test)]
mod generated;
mod host;
mod lax;
mod read;
mod reference;
mod schema;
#[cfg(test)]
mod tests;
pub(crate) mod typed;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::command::{CommandMode, CommandRule};
use crate::pattern::Pattern;
use crate::problem::{Log, Position, Problem, Problems};
use crate::tree::{self, Compat, Format, Node};
use crate::value::Value;

pub use brig_hosts::Rule as HostRule;
pub use canonical::Digest;
pub use fields::{CONTROLS, FACTS};
pub use reference::{reference, reference_of};
pub use schema::{schema, schema_of};

/// A value, and where it was given; nowhere if it is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    pub value: T,
    pub at: Option<Position>,
}

impl<T> Given<T> {
    pub(crate) fn default_of(value: T) -> Self {
        Self { value, at: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Allow,
    Deny,
    Audit,
    Block,
}

impl Verdict {
    pub const ALL: [Verdict; 4] = [
        Verdict::Allow,
        Verdict::Deny,
        Verdict::Audit,
        Verdict::Block,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
            Verdict::Audit => "audit",
            Verdict::Block => "block",
        }
    }

    pub fn allows(self) -> bool {
        matches!(self, Verdict::Allow | Verdict::Audit)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Lt,
    Gte,
    Lte,
    In,
    NotIn,
    Matches,
    Contains,
}

impl Operator {
    pub const ALL: [Operator; 10] = [
        Operator::Eq,
        Operator::Ne,
        Operator::Gt,
        Operator::Lt,
        Operator::Gte,
        Operator::Lte,
        Operator::In,
        Operator::NotIn,
        Operator::Matches,
        Operator::Contains,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operator::Eq => "eq",
            Operator::Ne => "ne",
            Operator::Gt => "gt",
            Operator::Lt => "lt",
            Operator::Gte => "gte",
            Operator::Lte => "lte",
            Operator::In => "in",
            Operator::NotIn => "not_in",
            Operator::Matches => "matches",
            Operator::Contains => "contains",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug)]
pub struct Condition {
    pub(crate) field: String,
    pub(crate) operator: Operator,
    pub(crate) value: Value,
    /// For [`Operator::Matches`]: the pattern, or what is wrong with it.
    pub(crate) pattern: Option<Result<Arc<Pattern>, String>>,
}

impl Condition {
    pub fn field(&self) -> &str {
        &self.field
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn value(&self) -> &Value {
        &self.value
    }
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) at: Position,
    pub(crate) name: String,
    pub(crate) condition: Condition,
    pub(crate) action: Verdict,
    pub(crate) priority: i64,
    pub(crate) message: String,
    pub(crate) overrides: bool,
}

impl Rule {
    pub fn at(&self) -> Position {
        self.at
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    pub fn action(&self) -> Verdict {
        self.action
    }

    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// The reason that is given when the rule decides.
    pub fn reason(&self) -> String {
        if self.message.is_empty() {
            format!("Matched rule '{}'", self.name)
        } else {
            self.message.clone()
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    pub action: Given<Verdict>,
    pub network: Given<Verdict>,
    pub max_tokens: Given<i64>,
    pub max_tool_calls: Given<i64>,
    pub confidence_threshold: Given<f64>,
}

/// What the policy limits; nothing where it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub max_cpu: Option<Given<f64>>,
    pub max_memory_mb: Option<Given<u64>>,
    pub timeout_seconds: Option<Given<u64>>,
    pub max_processes: Option<Given<u64>>,
    pub max_disk_mb: Option<Given<u64>>,
    pub max_output_bytes: Option<Given<u64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    pub input_dir: Option<Given<String>>,
    pub output_dir: Option<Given<String>>,
}

/// A policy that was read, checked and found sound.
#[derive(Clone, Debug)]
pub struct Document {
    pub(crate) file: Arc<str>,
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) defaults: Defaults,
    pub(crate) limits: Limits,
    pub(crate) inherit: bool,
    pub(crate) scope: Option<String>,
    pub(crate) network_allowlist: Vec<Given<HostRule>>,
    pub(crate) tool_allowlist: Vec<Given<String>>,
    pub(crate) mounts: Mounts,
    pub(crate) command_denylist: Vec<Given<CommandRule>>,
    pub(crate) command_allowlist: Option<Vec<Given<CommandRule>>>,
    pub(crate) command_mode: CommandMode,
    pub(crate) env: Vec<(String, Given<String>)>,
    pub(crate) waive: Vec<Given<String>>,
    pub(crate) digest: OnceLock<Digest>,
}

/// A document, and what it should not have said.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub document: Arc<Document>,
    pub warnings: Vec<Problem>,
}

impl Document {
    /// Reads a policy. The name of the file tells its format and goes into messages.
    pub fn load(file: &str, text: impl AsRef<[u8]>, compat: Compat) -> Result<Loaded, Problems> {
        let mut log = Log::new(file);
        let node = tree::parse(text.as_ref(), Format::of(file), compat, &mut log);
        Self::from_tree(node.as_ref(), compat, log)
    }

    /// A policy that is a part of another file.
    pub fn inline(file: &str, node: &Node) -> Result<Loaded, Problems> {
        Self::from_tree(Some(node), Compat::Strict, Log::new(file))
    }

    pub(crate) fn from_tree(
        node: Option<&Node>,
        compat: Compat,
        mut log: Log,
    ) -> Result<Loaded, Problems> {
        let document = node.and_then(|node| read::document(node, compat, &mut log));
        match document {
            Some(document) if !log.failed() => Ok(Loaded {
                document: Arc::new(document),
                warnings: log.finish(),
            }),
            _ => Err(Problems(log.finish())),
        }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    /// In the order in which they are written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn network_allowlist(&self) -> &[Given<HostRule>] {
        &self.network_allowlist
    }

    pub fn tool_allowlist(&self) -> &[Given<String>] {
        &self.tool_allowlist
    }

    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    pub fn command_denylist(&self) -> &[Given<CommandRule>] {
        &self.command_denylist
    }

    /// Nothing if every program may be run that is not denied.
    pub fn command_allowlist(&self) -> Option<&[Given<CommandRule>]> {
        self.command_allowlist.as_deref()
    }

    pub fn command_mode(&self) -> CommandMode {
        self.command_mode
    }

    pub fn env(&self) -> &[(String, Given<String>)] {
        &self.env
    }

    pub fn waive(&self) -> &[Given<String>] {
        &self.waive
    }

    /// The same for all texts that mean the same.
    pub fn digest(&self) -> &Digest {
        self.digest.get_or_init(|| Digest::of(self))
    }
}
