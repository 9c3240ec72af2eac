//! `brig sandbox check`: what would be answered, by whom, and why.

use std::sync::Arc;

use brig_config::{Disk, resolve};
use brig_egress::{Host, Pattern, Ports, Protocol};
use brig_policy::{Compat, PolicySet};
use brig_sandbox::SessionConfig;
use serde_json::json;

use crate::args::CheckHostArgs;
use crate::failure::Failure;
use crate::policy::load;
use crate::{exit, json, network, user, write_out};

pub fn run(args: &CheckHostArgs) -> Result<u8, Failure> {
    let (host, port) = target(args)?;
    let store = user::store()?;
    let mut documents = load::documents(&args.policy, Compat::Strict)?;
    let (user, agent_rules) = match &args.agent {
        None => (user::load(&store)?, Vec::new()),
        Some(reference) => {
            let run = resolve(&Disk, &store, reference, None).map_err(user::failed)?;
            load::show(&run.warnings);
            documents.extend(run.policy);
            (run.user, run.agent.network_allowlist)
        }
    };
    let mut config = SessionConfig::default();
    if !documents.is_empty() {
        config = config.under(Arc::new(PolicySet::new(documents)))?;
    }
    let network = network::layered(config.network, &agent_rules, &user, &args.allow);
    let decision = network.rules().decide(&host, port, Protocol::Connect);
    let code = if decision.allowed { 0 } else { exit::NO };
    if args.json {
        json::print(&json!({
            "host": host.to_string(),
            "port": port,
            "allowed": decision.allowed,
            "code": decision.reason.code(),
            "rule": decision.rule.as_ref().map(ToString::to_string),
            "layer": decision.layer.map(|layer| layer.to_string()),
            "reason": decision.to_string(),
            "hint": decision.hint(),
        }));
        return Ok(code);
    }
    match write_out(format!("{decision}\n").as_bytes()) {
        0 => Ok(code),
        broken => Ok(broken),
    }
}

fn target(args: &CheckHostArgs) -> Result<(Host, u16), Failure> {
    let host = match args.host.pattern() {
        Pattern::Name(name) => Host::Name(name.clone()),
        Pattern::Address(address) => Host::from(*address),
        Pattern::Below(_) | Pattern::Network { .. } => {
            return Err(one(args));
        }
    };
    match args.host.ports() {
        Ports::Web => Ok((host, 443)),
        Ports::One(port) => Ok((host, port)),
        Ports::Any => Err(one(args)),
    }
}

fn one(args: &CheckHostArgs) -> Failure {
    Failure::usage(format!("`{}` is more than one host and port", args.host))
        .with_hint("name one that a program could connect to")
}
