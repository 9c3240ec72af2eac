//! What an execution was denied, for people and for `--json`.

mod network;
mod text;

use brig_audit::{Command, Tool};
use brig_egress::Rule;
use brig_reason::ReasonCode;
use brig_sandbox::{Attempted, Denial, SessionId};
use serde_json::{Value, json};

use crate::log::{self, Level};

pub(crate) use network::{name_rule, rule_for};

/// Where the execution took place, and so how it can be given more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunKind<'a> {
    /// `brig run` and `brig agent run`: `--allow`.
    Run,
    /// `brig session exec`: the rules of the session.
    Session(&'a SessionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole execution.
    Execution,
    Network,
    Command,
    Tool,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Execution => "execution",
            Kind::Network => "network",
            Kind::Command => "command",
            Kind::Tool => "tool",
        }
    }
}

/// One thing that was denied, however often it was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub kind: Kind,
    pub what: String,
    pub times: u64,
    pub code: String,
    /// Without the name of what was denied, so that several can share it.
    pub reason: String,
    /// Who made the rule that decided.
    pub layer: Option<String>,
    pub rule: Option<String>,
    /// The network rule that would allow it.
    pub allow: Option<Rule>,
    /// A rule that other runs need beside it, because only a flag of this one allowed the name.
    pub name_rule: Option<Rule>,
    /// A command that would allow it, where a new rule would not.
    pub remedy: Option<String>,
}

/// All denials of one execution.
#[derive(Clone, Debug, Default)]
pub(crate) struct Denials {
    all: Vec<Denied>,
    /// How many more there were that are listed nowhere.
    more: u64,
}

impl Denials {
    pub(crate) fn of(attempted: &Attempted) -> Self {
        let mut all = network::denied(&attempted.egress);
        let listed: u64 = (attempted.egress.iter())
            .filter(|egress| !egress.allowed)
            .map(|egress| egress.times.map_or(1, |times| times.count))
            .sum();
        let commands = attempted.commands.iter().filter_map(command);
        for denied in commands.chain(attempted.tools.iter().filter_map(tool)) {
            // The same program with other arguments is the same denial.
            match all.iter_mut().find(|other| other.is_like(&denied)) {
                Some(other) => other.times += denied.times,
                None => all.push(denied),
            }
        }
        Self {
            all,
            more: attempted.totals.denied.saturating_sub(listed),
        }
    }

    /// The field `denials` of `--json`.
    pub(crate) fn json(&self, kind: RunKind<'_>) -> Value {
        self.all.iter().map(|denied| denied.json(kind)).collect()
    }

    /// Whether [`Self::show`] prints nothing.
    pub(crate) fn are_silent(&self) -> bool {
        !log::shows(Level::Info) || (self.all.is_empty() && self.more == 0)
    }

    /// The summary on stderr: nothing if nothing was denied.
    pub(crate) fn show(&self, kind: RunKind<'_>) {
        text::show(self, kind);
    }
}

/// The field `denials` for an execution that a policy denied.
pub(crate) fn of_execution(denial: &Denial) -> Value {
    let denied = Denied {
        kind: Kind::Execution,
        what: "execution".into(),
        times: 1,
        code: denial.code().to_owned(),
        reason: denial.reason().to_owned(),
        layer: Some("policy".into()),
        rule: denial.rule().map(str::to_owned),
        allow: None,
        name_rule: None,
        remedy: None,
    };
    json!([denied.json(RunKind::Run)])
}

impl Denied {
    fn is_like(&self, other: &Self) -> bool {
        let of = |denied: &Self| (denied.kind, denied.what.clone(), denied.reason.clone());
        of(self) == of(other)
    }

    /// The rules that would allow it in every run.
    fn lasting(&self) -> Vec<Rule> {
        let both = self.name_rule.iter().chain(&self.allow);
        both.cloned().collect()
    }

    fn json(&self, kind: RunKind<'_>) -> Value {
        let rules = self.allow.as_slice();
        json!({
            "kind": self.kind.name(),
            "what": self.what,
            "times": self.times,
            "code": self.code,
            "reason": self.reason,
            "layer": self.layer,
            "rule": self.rule,
            "allow_once": self.allow.as_ref().map(|_| once(kind, rules)),
            "allow_always": match &self.allow {
                Some(_) => Some(always(&self.lasting())),
                None => self.remedy.clone(),
            },
        })
    }
}

/// What allows hosts where this ran, and nowhere else.
fn once(kind: RunKind<'_>, rules: &[Rule]) -> String {
    match kind {
        RunKind::Run => {
            let flags: Vec<String> = (rules.iter())
                .map(|rule| format!("--allow {}", quoted(rule)))
                .collect();
            flags.join(" ")
        }
        RunKind::Session(id) => format!("brig session network allow {id} {}", list(rules)),
    }
}

/// The command that allows hosts everywhere.
fn always(rules: &[Rule]) -> String {
    format!("brig sandbox allow {}", list(rules))
}

fn list(rules: &[Rule]) -> String {
    let rules: Vec<String> = rules.iter().map(quoted).collect();
    rules.join(" ")
}

/// As a word for a shell.
fn quoted(rule: &Rule) -> String {
    crate::escape::shell_word(&rule.to_string())
}

fn command(command: &Command) -> Option<Denied> {
    let reason = match (&command.rule, command.allowed) {
        (_, true) => return None,
        (Some(rule), false) if command.code == ReasonCode::CommandDenied => {
            format!("`{rule}` is in the policy's `command_denylist`")
        }
        _ if command.code == ReasonCode::CommandNotAllowed => {
            "not in the policy's `command_allowlist`".into()
        }
        _ => command.code.clone(),
    };
    Some(Denied {
        kind: Kind::Command,
        what: command.program.clone(),
        times: command.times.map_or(1, |times| times.count),
        code: command.code.clone(),
        reason,
        layer: Some("policy".into()),
        rule: command.rule.clone(),
        allow: None,
        name_rule: None,
        remedy: None,
    })
}

fn tool(tool: &Tool) -> Option<Denied> {
    let is = |code: ReasonCode| tool.code == code;
    let reason = match &tool.rule {
        _ if is(ReasonCode::ToolNotAllowed) => "not in the policy's `tool_allowlist`".into(),
        _ if is(ReasonCode::ToolTooMany) => "more calls than the policy's `max_tool_calls`".into(),
        _ if is(ReasonCode::ToolArguments) => "its arguments are invalid".into(),
        _ if is(ReasonCode::ToolApproval) => "it was not approved".into(),
        Some(rule) if is(ReasonCode::ToolDenied) => format!("denied by rule `{rule}`"),
        None if is(ReasonCode::ToolDenied) => "no rule of the policy allows it".into(),
        _ => tool.code.clone(),
    };
    (!tool.allowed).then(|| Denied {
        kind: Kind::Tool,
        what: tool.tool.clone(),
        times: 1,
        code: tool.code.clone(),
        reason,
        layer: Some("policy".into()),
        rule: tool.rule.clone(),
        allow: None,
        name_rule: None,
        remedy: None,
    })
}
