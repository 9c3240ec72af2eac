//! `brig session network`: what one session may reach.

use brig_egress::Layer;
use brig_hosts::Rule;
use serde_json::json;

use super::find;
use crate::args::{NetworkCommand, SessionName};
use crate::failure::{self, Failure};
use crate::{json, write_out};

pub async fn run(command: &NetworkCommand) -> Result<u8, Failure> {
    let (session, layer, as_json) = match command {
        NetworkCommand::Allow(args) => {
            for warning in args.hosts.iter().filter_map(Rule::warning) {
                failure::note(&warning.message);
            }
            let allow = |layer: &mut Layer| {
                layer.deny.retain(|rule| !args.hosts.contains(rule));
                add(&mut layer.allow, &args.hosts);
            };
            (
                &args.session,
                change(&args.session, allow).await?,
                args.json,
            )
        }
        NetworkCommand::Deny(args) => {
            let deny = |layer: &mut Layer| {
                layer.allow.retain(|rule| !args.hosts.contains(rule));
                add(&mut layer.deny, &args.hosts);
            };
            (&args.session, change(&args.session, deny).await?, args.json)
        }
        NetworkCommand::Show(args) => (
            &args.session,
            change(&args.session, |_| {}).await?,
            args.json,
        ),
    };
    if as_json {
        json::print(&json!({
            "session_id": session.id,
            "allow": layer.allow,
            "deny": layer.deny,
        }));
        return Ok(0);
    }
    let lines = |word: &str, rules: &[Rule]| -> String {
        rules
            .iter()
            .map(|rule| format!("{word} {rule}\n"))
            .collect()
    };
    let text = lines("allow", &layer.allow) + &lines("deny ", &layer.deny);
    Ok(write_out(text.as_bytes()))
}

async fn change(name: &SessionName, change: impl FnOnce(&mut Layer)) -> Result<Layer, Failure> {
    let sandbox = find::sandbox()?;
    let info = find::find(&sandbox, name)?;
    Ok(sandbox
        .change_network(&info.agent, &info.id, change)
        .await?)
}

fn add(rules: &mut Vec<Rule>, new: &[Rule]) {
    for rule in new {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
}
