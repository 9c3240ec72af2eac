//! What the model is told before it tries: the limits of its sandbox, from the plan that enforces them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use brig_policy::{CommandMode, Document};
use brig_sandbox::{Plan, Strength};

use crate::text;

/// How many names of a list are written out.
const LISTED: usize = 12;

/// The sentences about the sandbox that every tool that runs something has.
pub(crate) fn sandbox(plan: &Plan) -> String {
    let mut sentences = vec![network(plan)];
    sentences.extend(commands(plan));
    sentences.extend(tools(plan));
    sentences.extend(approvals(plan));
    sentences.extend(mounts(plan));
    sentences.push(limits(plan));
    sentences.join(" ")
}

fn network(plan: &Plan) -> String {
    let network = plan.network();
    if network.open {
        return "Public hosts can be reached.".into();
    }
    let allowed = (network.layers.iter()).flat_map(|layer| &layer.allow);
    match list(allowed) {
        Some(hosts) => format!("No network except: {hosts}."),
        None => "There is no network.".into(),
    }
}

fn commands(plan: &Plan) -> Vec<String> {
    let Some(commands) = plan.commands() else {
        return Vec::new();
    };
    let enforced = |mode: CommandMode| mode == CommandMode::Enforce;
    let names = |lists: &[brig_policy::CommandList]| {
        let lists = lists.iter().filter(|own| enforced(own.mode));
        let rules: BTreeSet<&str> = lists
            .flat_map(|own| &own.entries)
            .map(|entry| &*entry.rule)
            .collect();
        list(rules.into_iter())
    };
    let allowed = names(&commands.allowed)
        .map(|names| format!("Only these programs can be started: {names}."));
    let denied =
        names(&commands.denied).map(|names| format!("These programs can't be started: {names}."));
    allowed.into_iter().chain(denied).collect()
}

fn tools(plan: &Plan) -> Option<String> {
    let names = list(plan.tools().specs().map(|spec| &spec.name))?;
    Some(format!(
        "Functions of the host that Python code can call by name, and other code with `brig-tool NAME JSON` \
         (`brig-tool --list` describes them): {names}."
    ))
}

/// A model that knows why a call takes long does not repeat it.
fn approvals(plan: &Plan) -> Option<String> {
    let asks = |document: &Arc<Document>| {
        document.defaults().action.value.needs_approval()
            || (document.rules().iter()).any(|rule| rule.action().needs_approval())
    };
    let any = plan.policies()?.documents().iter().any(asks);
    any.then(|| "Some calls wait until the operator has approved them.".into())
}

fn mounts(plan: &Plan) -> Vec<String> {
    let targets = |writable: bool| {
        let shown = plan.shown().filter(|mount| mount.writable == writable);
        list(shown.map(|mount| mount.target.display()))
    };
    let writable = targets(true).map(|paths| format!("Of the host, writable: {paths}."));
    let read_only = targets(false).map(|paths| format!("Of the host, read-only: {paths}."));
    writable.into_iter().chain(read_only).collect()
}

fn limits(plan: &Plan) -> String {
    let limits = plan.limits();
    format!(
        "Limits: {} of memory, {} CPUs, {} processes, {} of disk.",
        size(limits.memory_bytes.value),
        limits.cpus.value,
        limits.processes.value,
        size(limits.disk_bytes.value),
    )
}

/// What enforces each control, a line each.
pub(crate) fn enforcement(plan: &Plan) -> String {
    let line = |state: &brig_sandbox::ControlState| {
        let strength = match state.strength {
            Strength::Enforced => "enforced",
            Strength::Observed => "observed",
            Strength::Absent => "absent",
        };
        format!(
            "{}: {strength}, {}\n",
            state.control.name(),
            text::line(&state.by)
        )
    };
    let controls: String = plan.enforcement().iter().map(line).collect();
    format!("{}\n{controls}", sandbox(plan))
}

/// The first of them, and how many more there are.
fn list<T: Display>(items: impl Iterator<Item = T>) -> Option<String> {
    let all: Vec<String> = items.map(|item| text::line(&item.to_string())).collect();
    let shown = all.get(..LISTED).unwrap_or(&all).join(", ");
    match all.len() {
        0 => None,
        count if count > LISTED => Some(format!("{shown} and {} more", count - LISTED)),
        _ => Some(shown),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 && bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
