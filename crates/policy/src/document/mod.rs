//! The policy document. It can only be had from [`Document::load`], so that what was not checked
//! can't decide anything.

mod canonical;
pub(crate) mod fields;
#[cfg(test)]
mod generated;
mod host;
mod priority;
mod read;
mod reference;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use brig_python_semantics::{Pattern, Value};
use brig_schema::{Compat, Format, Given, Node, Position, Problem, ProblemLog, Problems, parse};

use crate::command::{CommandMode, CommandRule};

pub use brig_hosts::Rule as HostRule;
pub use canonical::Digest;
pub use fields::{CONTROLS, FACTS, HOSTS};
pub use priority::Priority;
pub use reference::{reference, schema};

/// The `action` of a rule or of the defaults: the answer that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
    /// Allowed as well. [`Answer::action`](crate::Answer::action) tells the two apart.
    Audit,
    /// Denied as well. [`Answer::action`](crate::Answer::action) tells the two apart.
    Block,
    /// Denied, unless somebody who may answer approves this one request.
    RequireApproval,
}

impl Verdict {
    /// Every action that a policy may contain.
    pub const ALL: [Verdict; 5] = [
        Verdict::Allow,
        Verdict::Deny,
        Verdict::Audit,
        Verdict::Block,
        Verdict::RequireApproval,
    ];

    /// As it is written in a policy, such as `allow`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
            Verdict::Audit => "audit",
            Verdict::Block => "block",
            Verdict::RequireApproval => "require_approval",
        }
    }

    /// Whether the execution may go on: true for `allow` and `audit`.
    pub fn allows(self) -> bool {
        matches!(self, Verdict::Allow | Verdict::Audit)
    }

    /// Whether somebody has to approve first. Until then it is a denial.
    pub fn needs_approval(self) -> bool {
        self == Verdict::RequireApproval
    }

    /// 0 allows, 1 needs approval, 2 denies. Of several answers, the highest holds.
    pub(crate) fn strictness(self) -> u8 {
        match self {
            Verdict::Allow | Verdict::Audit => 0,
            Verdict::RequireApproval => 1,
            Verdict::Deny | Verdict::Block => 2,
        }
    }
}

/// How a condition compares a fact with its value, with the semantics of Python. A missing or null
/// fact matches with no operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The fact equals the value. `true`, `1` and `1.0` are equal; `"1"` equals none of them.
    Eq,
    /// The fact does not equal the value.
    Ne,
    /// The fact is greater. Numbers, text and lists have an order; anything else is an error.
    Gt,
    /// The fact is less.
    Lt,
    /// The fact is greater or equal.
    Gte,
    /// The fact is less or equal.
    Lte,
    /// The fact is an item of the list, a part of the text, or a key of the map.
    In,
    /// The fact is not in the value, by the same comparison as [`Operator::In`].
    NotIn,
    /// `re.search` finds the pattern in the fact, or in its `str()`.
    Matches,
    /// The value is a part of the text, an item of the list, or a key of the map that the fact is.
    Contains,
}

impl Operator {
    /// Every operator that a policy may contain.
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

    /// As it is written in a policy, such as `not_in`.
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

/// When a rule matches: one fact, compared with one value.
#[derive(Clone, Debug)]
pub struct Condition {
    pub(crate) field: String,
    pub(crate) operator: Operator,
    pub(crate) value: Value,
    /// For [`Operator::Matches`]: the pattern, or what is wrong with it.
    pub(crate) pattern: Option<Result<Arc<Pattern>, String>>,
}

impl Condition {
    /// The fact that is compared: a plain key of the context, not a dotted path.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// How the fact is compared.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What the fact is compared with. For [`Operator::Matches`], the pattern as it was written.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// A condition, and the answer when it matches.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) at: Position,
    pub(crate) name: String,
    pub(crate) condition: Condition,
    pub(crate) action: Verdict,
    pub(crate) priority: Priority,
    pub(crate) message: String,
    pub(crate) overrides: bool,
}

impl Rule {
    /// Where the rule begins in its file.
    pub fn at(&self) -> Position {
        self.at
    }

    /// The name, as decisions and records show it. A policy may have two rules of one name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When the rule matches.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// The answer when the rule matches.
    pub fn action(&self) -> Verdict {
        self.action
    }

    /// Rules with a higher priority are tried first; of equal priorities, the one written first.
    pub fn priority(&self) -> &Priority {
        &self.priority
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

/// What applies when no rule matches, and limits that the caller enforces. Each value is the
/// default where the policy does not set it.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    /// The answer when no rule matches. If it is not set, `deny`; for a policy that was read with
    /// [`Compat::Agt`], `allow`.
    pub action: Given<Verdict>,
    /// Whether hosts that are not on the allowlist may be reached: `allow` or `deny`. If it is not
    /// set, `deny`.
    pub network: Given<Verdict>,
    /// The most tokens per request, 4096 if not set. For the caller to enforce.
    pub max_tokens: Given<i64>,
    /// The most tool calls of one execution, 10 if not set.
    pub max_tool_calls: Given<i64>,
    /// The minimum confidence, from 0 to 1; 0.8 if not set. For the caller to enforce.
    pub confidence_threshold: Given<f64>,
    /// How long an approval is waited for, in seconds, 300 if not set. Then the answer is a denial.
    pub approval_timeout_seconds: Given<i64>,
}

/// The limits of the policy, where it sets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU time per second, in CPUs, from 0.01 to 1024.
    pub max_cpu: Option<Given<f64>>,
    /// Memory, in MiB, from 16 to 1048576.
    pub max_memory_mb: Option<Given<u64>>,
    /// Duration of an execution, in seconds, from 1 to 86400.
    pub timeout_seconds: Option<Given<u64>>,
    /// Number of processes and threads, from 1 to 65536.
    pub max_processes: Option<Given<u64>>,
    /// What may be written to disk, in MiB, from 1 to 1048576.
    pub max_disk_mb: Option<Given<u64>>,
    /// What is kept of each of stdout and stderr, in bytes, from 1 to 1073741824.
    pub max_output_bytes: Option<Given<u64>>,
}

/// Host directories that are mounted in the sandbox. `None` if the policy does not name one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Mounted read-only at `/input`. The path is as written in the policy.
    pub input_dir: Option<Given<String>>,
    /// Mounted writable at `/output`. The path is as written in the policy.
    pub output_dir: Option<Given<String>>,
}

/// A policy that was read, checked and found valid.
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
    pub(crate) record_tool_arguments: bool,
    pub(crate) mounts: Mounts,
    pub(crate) command_denylist: Vec<Given<CommandRule>>,
    pub(crate) command_allowlist: Option<Vec<Given<CommandRule>>>,
    pub(crate) command_mode: CommandMode,
    pub(crate) env: Vec<(String, Given<String>)>,
    pub(crate) waive: Vec<Given<String>>,
    pub(crate) digest: OnceLock<Digest>,
}

/// A document, and warnings about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The policy. It is shared by the sets that are made of it.
    pub document: Arc<Document>,
    /// What is suspect in it, though valid. Empty for most policies.
    pub warnings: Vec<Problem>,
}

impl Document {
    /// Reads a policy. The format depends on the name of the file, which is also used in messages.
    pub fn load(file: &str, text: impl AsRef<[u8]>, compat: Compat) -> Result<Loaded, Problems> {
        let mut log = ProblemLog::new(file);
        let node = parse(text.as_ref(), Format::of(file), compat, &mut log);
        Self::from_tree(node.as_ref(), compat, log)
    }

    /// A policy that is a part of another file.
    pub fn inline(file: &str, node: &Node) -> Result<Loaded, Problems> {
        Self::from_tree(Some(node), Compat::Strict, ProblemLog::new(file))
    }

    pub(crate) fn from_tree(
        node: Option<&Node>,
        compat: Compat,
        mut log: ProblemLog,
    ) -> Result<Loaded, Problems> {
        let document = node.and_then(|node| read::document(node, compat, &mut log));
        if let (Some(document), Compat::Agt) = (&document, compat) {
            read::refuse_approval(document, &mut log);
        }
        Self::checked(document, log)
    }

    /// A policy in the form in which a session keeps it. Strictness was decided when it was first read.
    pub(crate) fn from_stored(
        node: Option<&Node>,
        mut log: ProblemLog,
    ) -> Result<Loaded, Problems> {
        let document = node.and_then(|node| read::document(node, Compat::Agt, &mut log));
        Self::checked(document, log)
    }

    fn checked(document: Option<Document>, log: ProblemLog) -> Result<Loaded, Problems> {
        match document {
            Some(document) if !log.failed() => Ok(Loaded {
                document: Arc::new(document),
                warnings: log.finish(),
            }),
            _ => Err(Problems(log.finish())),
        }
    }

    /// The name of the file, as it was given when the policy was read.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The version that the author chose, `1.0` if there is none. Brig does not interpret it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The name, as decisions and records show it; `unnamed` if there is none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the policy is for. Empty if it does not say.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// In the order in which they are written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What applies when no rule matches, and limits that the caller enforces.
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The limits that the policy sets for every execution.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The hosts that may be reached, in the order of the policy. Empty if it names none.
    pub fn network_allowlist(&self) -> &[Given<HostRule>] {
        &self.network_allowlist
    }

    /// The only tools that may be called. Empty if the policy names none.
    pub fn tool_allowlist(&self) -> &[Given<String>] {
        &self.tool_allowlist
    }

    /// Whether the arguments of tool calls are recorded, not only their digest.
    pub fn record_tool_arguments(&self) -> bool {
        self.record_tool_arguments
    }

    /// The host directories that are mounted in the sandbox.
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// The programs that may not be run. Named sets are not written out.
    pub fn command_denylist(&self) -> &[Given<CommandRule>] {
        &self.command_denylist
    }

    /// Nothing if every program may be run that is not denied.
    pub fn command_allowlist(&self) -> Option<&[Given<CommandRule>]> {
        self.command_allowlist.as_deref()
    }

    /// Whether the lists of commands are enforced or only observed.
    pub fn command_mode(&self) -> CommandMode {
        self.command_mode
    }

    /// Environment variables of every execution: names and values, in the order of the policy.
    pub fn env(&self) -> &[(String, Given<String>)] {
        &self.env
    }

    /// Controls that a backend may lack, by name; each is one of [`CONTROLS`].
    pub fn waive(&self) -> &[Given<String>] {
        &self.waive
    }

    /// The same for all texts that mean the same.
    pub fn digest(&self) -> &Digest {
        self.digest.get_or_init(|| Digest::of(self))
    }
}
