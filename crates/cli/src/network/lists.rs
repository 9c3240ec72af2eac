//! The user's lists of allowed and blocked hosts.

use brig_config::{Change, Changed, List};
use brig_egress::{Host, Pattern, Ports, Rule};
use serde_json::{Map, Value, json};

use crate::args::{HostsArgs, ListHostsArgs};
use crate::failure::{self, Failure};
use crate::user_change::UserChange;
use crate::{escape, json, user, write_out};

pub(crate) fn change(list: List, change: Change, args: &HostsArgs) -> Result<u8, Failure> {
    let changed = apply(list, change, &args.hosts)?;
    if change == Change::Add && list == List::Allow {
        super::warn(&changed.done);
        note_blocked(&args.hosts);
    }
    if args.json {
        let (done, already) = match change {
            Change::Add => ("added", "already_present"),
            Change::Remove => ("removed", "absent"),
        };
        let texts = |rules: &[Rule]| Value::from_iter(rules.iter().map(ToString::to_string));
        let object = [
            (done.to_owned(), texts(&changed.done)),
            (already.to_owned(), texts(&changed.already)),
        ];
        json::print(&Value::Object(Map::from_iter(object)));
        return Ok(0);
    }
    Ok(write_out(summary(list, change, &changed).as_bytes()))
}

/// Changes a list, and records the change before it is made.
pub(crate) fn apply(list: List, change: Change, hosts: &[Rule]) -> Result<Changed, Failure> {
    let layer = match list {
        List::Allow => "user",
        List::Block => "user-block",
    };
    let made = UserChange::of(layer)?;
    let record = |changed: &Changed| {
        let rules: Vec<String> = changed.done.iter().map(ToString::to_string).collect();
        match change {
            Change::Add => made.announce(rules, Vec::new()),
            Change::Remove => made.announce(Vec::new(), rules),
        }
    };
    made.done(user::store()?.change(list, change, hosts, record))
}

/// A host that is allowed and blocked is blocked.
fn note_blocked(hosts: &[Rule]) {
    let config = user::readable();
    for rule in hosts {
        let host = match rule.pattern() {
            Pattern::Name(name) => Host::Name(name.clone()),
            Pattern::Address(address) => Host::from(*address),
            Pattern::Below(_) | Pattern::Network { .. } => continue,
        };
        let port = match rule.ports() {
            Ports::One(port) => port,
            Ports::Web | Ports::Any => 443,
        };
        if let Some(block) = (config.block().iter()).find(|block| block.blocks(&host, port)) {
            failure::note(&format!("`{rule}` remains denied: `{block}` is blocked"));
        }
    }
}

fn summary(list: List, change: Change, changed: &Changed) -> String {
    let (verb, sign, already) = match (change, list) {
        (Change::Add, List::Allow) => ("allowed", '+', "already allowed"),
        (Change::Add, List::Block) => ("blocked", '+', "already blocked"),
        (Change::Remove, List::Allow) => ("no longer allowed", '-', "not on the allowlist"),
        (Change::Remove, List::Block) => ("no longer blocked", '-', "not blocked"),
    };
    let hosts = |n: usize| if n == 1 { "host" } else { "hosts" };
    let mut out = String::new();
    if !changed.done.is_empty() {
        let n = changed.done.len();
        out.push_str(&format!("{n} {} {verb}\n", hosts(n)));
        for rule in &changed.done {
            out.push_str(&format!("  {sign} {rule}\n"));
        }
    }
    for rule in &changed.already {
        out.push_str(&format!("  = {rule} ({already})\n"));
    }
    out
}

pub(crate) fn show(args: &ListHostsArgs) -> Result<u8, Failure> {
    let store = user::store()?;
    let config = user::load(&store)?;
    if args.json {
        json::print(&json!({
            "path": store.path(),
            "allow": config.allow(),
            "block": config.block(),
        }));
        return Ok(0);
    }
    let mut out = String::new();
    let lists = [("allowed", config.allow()), ("blocked", config.block())];
    for (what, rules) in lists.iter().filter(|(_, rules)| !rules.is_empty()) {
        out.push_str(&format!("{what}: {}\n", rules.len()));
        for rule in *rules {
            out.push_str(&format!("  {}\n", escape::line(&rule.to_string())));
        }
    }
    if out.is_empty() {
        failure::note("no hosts are allowed or blocked");
        failure::hint("brig sandbox allow HOST");
    }
    Ok(write_out(out.as_bytes()))
}
