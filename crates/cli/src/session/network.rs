//! `brig session network`: which hosts one session may reach.

use brig_egress::Layer;
use brig_hosts::Rule;
use brig_sandbox::Error;
use serde_json::json;

use crate::args::NetworkCommand;
use crate::failure::{self, Failure};
use crate::{assemble, json, write_out};

pub(crate) async fn run(command: &NetworkCommand) -> Result<u8, Failure> {
    let (name, as_json) = match command {
        NetworkCommand::Allow(args)
        | NetworkCommand::Block(args)
        | NetworkCommand::Unblock(args) => (&args.session, args.json),
        NetworkCommand::Show(args) => (&args.session, args.json),
    };
    let (sessions, agent) = assemble::find_session(name)?;
    let change = async |change: &dyn Fn(&mut Layer)| -> Result<Layer, Failure> {
        match sessions.change_network(&agent, &name.id, change) {
            // Its instance may go on without a process, and only its backend can reach it.
            Err(Error::OtherBackend { backend, .. }) => {
                let sandbox = assemble::sandbox_of(&backend).await?;
                Ok(sandbox.change_network(&agent, &name.id, change).await?)
            }
            changed => Ok(changed?),
        }
    };
    let layer = match command {
        NetworkCommand::Allow(args) => {
            for warning in args.hosts.iter().filter_map(Rule::warning) {
                failure::note(&warning.message);
            }
            change(&|layer: &mut Layer| {
                layer.deny.retain(|rule| !args.hosts.contains(rule));
                add(&mut layer.allow, &args.hosts);
            })
            .await?
        }
        NetworkCommand::Block(args) => {
            change(&|layer: &mut Layer| {
                layer.allow.retain(|rule| !args.hosts.contains(rule));
                add(&mut layer.deny, &args.hosts);
            })
            .await?
        }
        NetworkCommand::Unblock(args) => {
            change(&|layer: &mut Layer| {
                layer.deny.retain(|rule| !args.hosts.contains(rule));
            })
            .await?
        }
        NetworkCommand::Show(_) => sessions.network(&agent, &name.id)?,
    };
    if as_json {
        json::print(&json!({
            "session_id": name.id,
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
    let text = lines("allow", &layer.allow) + &lines("block", &layer.deny);
    Ok(write_out(text.as_bytes()))
}

fn add(rules: &mut Vec<Rule>, new: &[Rule]) {
    for rule in new {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
}
