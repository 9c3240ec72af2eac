//! What an agent may newly do under another policy, and what no longer.

use brig_python_semantics::{Map, Value};
use brig_schema::Given;
use serde::Serialize;

use crate::command::{CommandEntry, CommandMode, CommandRule};
use crate::document::{Document, HostRule, Verdict};
use crate::engine::Answer;
use crate::explain::sample;
use crate::set::PolicySet;

/// What a change means for the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// More may be done than before.
    Looser,
    /// Less may be done.
    Tighter,
    /// Different, without being either.
    Changed,
}

/// One difference between two policies.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Whether more or less may be done.
    pub direction: Direction,
    /// The part of the policy, such as `network` or `rules`.
    pub part: &'static str,
    /// What is different, for people to read.
    pub message: String,
    /// A context that shows it.
    pub context: Option<Map>,
}

/// From the first policy to the second. Rules are compared by trying the facts that they test, so
/// that a difference is always a real one; two policies without any may still differ elsewhere.
pub fn diff(before: &PolicySet, after: &PolicySet) -> Vec<Change> {
    let mut changes = Changes(Vec::new());
    rules(before, after, &mut changes);
    let (Some(a), Some(b)) = (before.documents().first(), after.documents().first()) else {
        return changes.0;
    };
    limits(a, b, &mut changes);
    network(a, b, &mut changes);
    let (was, is) = (names(&a.tool_allowlist), names(&b.tool_allowlist));
    lists("tools", "tool", "may be called", &was, &is, &mut changes);
    arguments(a, b, &mut changes);
    commands(a, b, &mut changes);
    mounts(a, b, &mut changes);
    environment(a, b, &mut changes);
    let (was, is) = (names(&a.waive), names(&b.waive));
    lists(
        "waive",
        "control",
        "may be missing",
        &was,
        &is,
        &mut changes,
    );
    changes.0.sort_by_key(|change| change.direction);
    changes.0
}

struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, direction: Direction, part: &'static str, message: String) {
        self.0.push(Change {
            direction,
            part,
            message,
            context: None,
        });
    }
}

fn rules(before: &PolicySet, after: &PolicySet, changes: &mut Changes) {
    let mut seen = Vec::new();
    for context in probes(before, after) {
        let (a, b) = (before.evaluate(&context), after.evaluate(&context));
        if a.action.strictness() == b.action.strictness() {
            continue;
        }
        let by = |rule: &Option<String>| match rule {
            Some(rule) => format!("rule `{rule}`"),
            None => "the default".to_owned(),
        };
        let (a_by, b_by) = (by(&a.matched_rule), by(&b.matched_rule));
        // One example for each pair of rules is enough.
        if seen.contains(&(a_by.clone(), b_by.clone())) {
            continue;
        }
        let direction = match b.action.strictness() < a.action.strictness() {
            true => Direction::Looser,
            false => Direction::Tighter,
        };
        let (was, is) = (answered(&a), answered(&b));
        let message = format!("{was} by {a_by} before, {is} by {b_by} now");
        seen.push((a_by, b_by));
        changes.0.push(Change {
            direction,
            part: "rules",
            message,
            context: Some(context),
        });
    }
}

fn answered(answer: &Answer) -> &'static str {
    match answer.action.strictness() {
        0 => "allowed",
        1 => "allowed only with approval",
        _ => "denied",
    }
}

/// Contexts that the rules of either policy test, one fact at a time.
fn probes(before: &PolicySet, after: &PolicySet) -> Vec<Map> {
    let mut probes = vec![Map::new()];
    for (_, rule) in before.engine().rules().chain(after.engine().rules()) {
        let condition = &rule.condition;
        let mut values: Vec<Value> = sample::satisfying(condition).into_iter().collect();
        if let Value::List(items) = &condition.value {
            values.extend(items.iter().cloned());
        }
        values.push("something else".into());
        for value in values {
            let probe: Map = [(condition.field.as_str(), value)].into_iter().collect();
            if !probes.contains(&probe) {
                probes.push(probe);
            }
        }
    }
    probes
}

fn limits(a: &Document, b: &Document, changes: &mut Changes) {
    fn limit<T: PartialOrd + std::fmt::Display>(
        name: &str,
        a: Option<&Given<T>>,
        b: Option<&Given<T>>,
        changes: &mut Changes,
    ) {
        let (direction, message) = match (a, b) {
            (None, Some(b)) => (Direction::Tighter, format!("`{name}` is {} now", b.value)),
            (Some(a), None) => (
                Direction::Looser,
                format!(
                    "`{name}` was {}; now only Brig's own default applies",
                    a.value
                ),
            ),
            (Some(a), Some(b)) if a.value != b.value => (
                if b.value > a.value {
                    Direction::Looser
                } else {
                    Direction::Tighter
                },
                format!("`{name}` changes from {} to {}", a.value, b.value),
            ),
            _ => return,
        };
        changes.push(direction, "limits", message);
    }
    let (x, y) = (&a.limits, &b.limits);
    limit("max_cpu", x.max_cpu.as_ref(), y.max_cpu.as_ref(), changes);
    limit(
        "max_memory_mb",
        x.max_memory_mb.as_ref(),
        y.max_memory_mb.as_ref(),
        changes,
    );
    limit(
        "timeout_seconds",
        x.timeout_seconds.as_ref(),
        y.timeout_seconds.as_ref(),
        changes,
    );
    limit(
        "max_processes",
        x.max_processes.as_ref(),
        y.max_processes.as_ref(),
        changes,
    );
    limit(
        "max_disk_mb",
        x.max_disk_mb.as_ref(),
        y.max_disk_mb.as_ref(),
        changes,
    );
    limit(
        "max_output_bytes",
        x.max_output_bytes.as_ref(),
        y.max_output_bytes.as_ref(),
        changes,
    );
    let (x, y) = (&a.defaults, &b.defaults);
    limit(
        "max_tokens",
        Some(&x.max_tokens),
        Some(&y.max_tokens),
        changes,
    );
    limit(
        "max_tool_calls",
        Some(&x.max_tool_calls),
        Some(&y.max_tool_calls),
        changes,
    );
    limit(
        "approval_timeout_seconds",
        Some(&x.approval_timeout_seconds),
        Some(&y.approval_timeout_seconds),
        changes,
    );
}

fn network(a: &Document, b: &Document, changes: &mut Changes) {
    let open = |document: &Document| document.defaults.network.value == Verdict::Allow;
    match (open(a), open(b)) {
        (false, true) => {
            let message = "every host may be reached, whether it is listed or not".into();
            changes.push(Direction::Looser, "network", message);
            return;
        }
        (true, false) => {
            let message = "only listed hosts may be reached".into();
            changes.push(Direction::Tighter, "network", message);
            return;
        }
        (true, true) => return,
        (false, false) => {}
    }
    let covered =
        |list: &[Given<HostRule>], host: &HostRule| list.iter().any(|rule| rule.value.covers(host));
    for host in &b.network_allowlist {
        if !covered(&a.network_allowlist, &host.value) {
            let message = format!("host `{}` may be reached", host.value);
            changes.push(Direction::Looser, "network", message);
        }
    }
    for host in &a.network_allowlist {
        if !covered(&b.network_allowlist, &host.value) {
            let message = format!("host `{}` may no longer be reached", host.value);
            changes.push(Direction::Tighter, "network", message);
        }
    }
}

fn names(list: &[Given<String>]) -> Vec<&str> {
    list.iter().map(|given| &*given.value).collect()
}

fn lists(part: &'static str, what: &str, may: &str, a: &[&str], b: &[&str], changes: &mut Changes) {
    for name in b.iter().filter(|name| !a.contains(name)) {
        changes.push(Direction::Looser, part, format!("{what} `{name}` {may}"));
    }
    for name in a.iter().filter(|name| !b.contains(name)) {
        changes.push(
            Direction::Tighter,
            part,
            format!("{what} `{name}` no longer {may}"),
        );
    }
}

fn arguments(a: &Document, b: &Document, changes: &mut Changes) {
    let message = match (a.record_tool_arguments, b.record_tool_arguments) {
        (false, true) => "the arguments of tool calls are recorded",
        (true, false) => "the arguments of tool calls are no longer recorded",
        _ => return,
    };
    changes.push(Direction::Changed, "tools", message.into());
}

/// With sets written out, so that a set and its programs are alike.
fn programs(list: &[Given<CommandRule>]) -> Vec<String> {
    let rules = list.iter().map(|given| &given.value);
    let mut all: Vec<String> = rules
        .flat_map(CommandEntry::all_of)
        .map(|entry| entry.text())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn commands(a: &Document, b: &Document, changes: &mut Changes) {
    let (was, is) = (programs(&a.command_denylist), programs(&b.command_denylist));
    // What leaves a denylist may be run: the two sides change places.
    let mut compare = |a: &[String], b: &[String]| {
        let a: Vec<&str> = a.iter().map(String::as_str).collect();
        let b: Vec<&str> = b.iter().map(String::as_str).collect();
        lists("commands", "command", "may be run", &a, &b, changes);
    };
    compare(&is, &was);
    if let (Some(a), Some(b)) = (&a.command_allowlist, &b.command_allowlist) {
        compare(&programs(a), &programs(b));
    }
    match (&a.command_allowlist, &b.command_allowlist) {
        (None, Some(list)) => {
            let only = programs(list).join(", ");
            let message = format!("only these commands may be run: {only}");
            changes.push(Direction::Tighter, "commands", message);
        }
        (Some(_), None) => {
            let message = "commands that are not on a list may be run".into();
            changes.push(Direction::Looser, "commands", message);
        }
        _ => {}
    }
    let has_lists =
        |one: &Document| !one.command_denylist.is_empty() || one.command_allowlist.is_some();
    match (a.command_mode, b.command_mode) {
        (CommandMode::Enforce, CommandMode::Observe) if has_lists(a) => {
            let message = "the command lists are only observed".into();
            changes.push(Direction::Looser, "commands", message);
        }
        (CommandMode::Observe, CommandMode::Enforce) if has_lists(b) => {
            let message = "the command lists are enforced".into();
            changes.push(Direction::Tighter, "commands", message);
        }
        _ => {}
    }
}

fn mounts(a: &Document, b: &Document, changes: &mut Changes) {
    let folders = [
        (
            "input_dir",
            "read",
            &a.mounts.input_dir,
            &b.mounts.input_dir,
        ),
        (
            "output_dir",
            "written",
            &a.mounts.output_dir,
            &b.mounts.output_dir,
        ),
    ];
    for (name, verb, a, b) in folders {
        let (a, b) = (
            a.as_ref().map(|given| &given.value),
            b.as_ref().map(|given| &given.value),
        );
        if a == b {
            continue;
        }
        if let Some(b) = b {
            changes.push(
                Direction::Looser,
                "mounts",
                format!("`{b}` may be {verb} ({name})"),
            );
        }
        if let Some(a) = a {
            let message = format!("`{a}` may no longer be {verb} ({name})");
            changes.push(Direction::Tighter, "mounts", message);
        }
    }
}

fn environment(a: &Document, b: &Document, changes: &mut Changes) {
    let value = |document: &Document, name: &str| {
        let found = document.env.iter().find(|(known, _)| known == name);
        found.map(|(_, given)| given.value.clone())
    };
    let mut all: Vec<&str> = a
        .env
        .iter()
        .chain(&b.env)
        .map(|(name, _)| &**name)
        .collect();
    all.sort_unstable();
    all.dedup();
    for name in all {
        let message = match (value(a, name), value(b, name)) {
            (a, b) if a == b => continue,
            (None, _) => format!("variable `{name}` is set"),
            (_, None) => format!("variable `{name}` is no longer set"),
            _ => format!("variable `{name}` has another value"),
        };
        changes.push(Direction::Changed, "env", message);
    }
}
