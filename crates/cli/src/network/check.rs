//! `brig sandbox check`: whether a host may be reached, and why.

use brig_config::{Disk, resolve};
use brig_egress::{Host, Pattern, Ports, Protocol};
use brig_policy::Compat;
use brig_sandbox::{PolicyFiles, SessionConfig};
use serde_json::json;

use crate::args::CheckHostArgs;
use crate::failure::Failure;
use crate::policy::load;
use crate::{exit, json, user, write_out};

pub(crate) fn run(args: &CheckHostArgs) -> Result<u8, Failure> {
    let (host, port) = target(args)?;
    let store = user::store()?;
    let mut policies = PolicyFiles::new(&args.policy);
    let (user, agent_rules) = match &args.agent {
        None => (user::load(&store)?, Vec::new()),
        Some(reference) => {
            let run = resolve(&Disk, &store, reference, None).map_err(user::failed)?;
            load::show(&run.warnings);
            policies = policies.and(run.policy, []);
            (run.user, run.agent.network_allowlist)
        }
    };
    let mut config = SessionConfig::default();
    if let Some(policies) = load::load(&policies, Compat::Strict)? {
        config = config.under(policies)?;
    }
    let layers = brig_config::layers(&agent_rules, &user, &args.allow);
    config.network.layers.extend(layers);
    let rules = config.network.rules();
    let decision = match args.host.is_raw() {
        true => rules.decide_raw(&host, port, Protocol::Connect),
        false => rules.decide(&host, port, Protocol::Connect),
    };
    let code = if decision.allowed { 0 } else { exit::NO };
    if args.json {
        json::print(&json!({
            "host": host.to_string(),
            "port": port,
            "allowed": decision.allowed,
            "raw": decision.raw,
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
    Failure::usage(format!("`{}` is not a single host and port", args.host))
        .with_hint("give one host that a program could connect to")
}
