//! `brig sandbox`: which hosts sandboxes may reach.

mod check;
mod lists;
mod recorded;
mod suggest;
mod used;

use brig_config::{Change, List};
use brig_egress::Rule;
use brig_sandbox::config::NetworkConfig;

use crate::args::SandboxCommand;
use crate::failure;

pub(crate) fn run(command: &SandboxCommand) -> u8 {
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

/// Prints the allowed hosts by layer on stderr, and warnings about `new` rules. Nothing if there is no
/// network.
pub(crate) fn announce(network: &NetworkConfig, new: &[Rule]) {
    if !network.is_on() {
        return;
    }
    if network.open {
        failure::warning(
            "NETWORK OPEN: the policy sets `network_default: allow`; every public host can be \
             reached",
        );
    }
    for line in brig_config::summary(&network.layers) {
        failure::network(&line);
    }
    warn(new);
}

/// Warnings about rules that are valid.
pub(crate) fn warn(rules: &[Rule]) {
    for warning in rules.iter().filter_map(Rule::warning) {
        failure::warning(&warning.message);
    }
}
