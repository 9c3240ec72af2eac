//! `brig sandbox`: what sandboxes may reach. And the layers of rules that a run starts with.

mod check;
mod lists;
mod recorded;
mod suggest;
mod used;

use brig_config::{Change, List, UserConfig};
use brig_egress::Rule;
use brig_sandbox::config::NetworkConfig;

use crate::args::SandboxCommand;
use crate::failure;

pub fn run(command: &SandboxCommand) -> u8 {
    let (result, as_json) = match command {
        SandboxCommand::Allow(args) => (lists::change(List::Allow, Change::Add, args), args.json),
        SandboxCommand::Deny(args) => (lists::change(List::Allow, Change::Remove, args), args.json),
        SandboxCommand::Block(args) => (lists::change(List::Block, Change::Add, args), args.json),
        SandboxCommand::Unblock(args) => {
            (lists::change(List::Block, Change::Remove, args), args.json)
        }
        SandboxCommand::List(args) => (lists::show(args), args.json),
        SandboxCommand::Check(args) => (check::run(args), args.json),
        SandboxCommand::Suggest(args) => (suggest::run(args), args.json),
        SandboxCommand::Used(args) => (used::run(args), args.json),
    };
    result.unwrap_or_else(|failure| {
        failure.report(as_json);
        failure.exit()
    })
}

/// Adds the layers of the agent file, the user and the flags to those of the policies.
pub fn layered(
    mut network: NetworkConfig,
    agent_file: &[Rule],
    user: &UserConfig,
    run: &[Rule],
) -> NetworkConfig {
    let layers = brig_config::layers(agent_file, user, run);
    network.layers.extend(layers);
    network
}

/// Says on stderr which layer opens what, before anything runs. Nothing if there is no network.
pub fn announce(network: &NetworkConfig, new: &[Rule]) {
    if !network.is_on() {
        return;
    }
    if network.open {
        failure::warning(
            "NETWORK OPEN: the policy says `network_default: allow`; every public host can be reached",
        );
    }
    for line in brig_config::summary(&network.layers) {
        failure::network(&line);
    }
    warn(new);
}

/// What a person should know about rules that are sound.
pub fn warn(rules: &[Rule]) {
    for warning in rules.iter().filter_map(Rule::warning) {
        failure::warning(&warning.message);
    }
}
