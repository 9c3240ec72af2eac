//! Layers of rules, and the decision they give.

mod index;
mod live;

use std::fmt;
use std::net::IpAddr;

use brig_hosts::{Class, Host, Rule, canonical};
use serde::{Deserialize, Serialize};

use crate::decision::{Decision, Protocol, Reason};
use index::{Found, Index};

pub use live::Rules;

/// Where rules come from, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    Policy,
    /// The agent's file.
    Agent,
    /// The user's configuration.
    User,
    /// The flags of this run.
    Run,
    /// What was changed while the session was open.
    Session,
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayerKind::Policy => "policy",
            LayerKind::Agent => "agent file",
            LayerKind::User => "user",
            LayerKind::Run => "run",
            LayerKind::Session => "session",
        })
    }
}

/// The rules of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub kind: LayerKind,
    pub allow: Vec<Rule>,
    /// Beats the allow rules of all layers. Without a port, a rule here means every port.
    pub deny: Vec<Rule>,
}

impl Layer {
    pub fn new(kind: LayerKind) -> Self {
        Self {
            kind,
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }

    pub fn allow(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.allow.extend(rules);
        self
    }

    pub fn deny(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.deny.extend(rules);
        self
    }
}

/// All layers, ready to decide. A decision takes no longer with more rules.
#[derive(Debug)]
pub struct RuleSet {
    layers: Vec<Layer>,
    open: bool,
    generation: u64,
    allow: Index,
    deny: Index,
}

impl RuleSet {
    /// Denies what no rule allows.
    pub fn new(layers: Vec<Layer>) -> Self {
        Self::build(layers, false, 0)
    }

    /// Allows what no rule denies, but for addresses that are not public (`network_default: allow`).
    pub fn open(layers: Vec<Layer>) -> Self {
        Self::build(layers, true, 0)
    }

    fn build(layers: Vec<Layer>, open: bool, generation: u64) -> Self {
        let index = |of: fn(&Layer) -> &Vec<Rule>| {
            Index::new(
                (layers.iter()).flat_map(|layer| of(layer).iter().map(|rule| (layer.kind, rule))),
            )
        };
        Self {
            open,
            generation,
            allow: index(|layer| &layer.allow),
            deny: index(|layer| &layer.deny),
            layers,
        }
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a connection to this host and port may be made. A name that is allowed may still
    /// lead to an address that is not: see [`check_address`](Self::check_address).
    pub fn decide(&self, host: &Host, port: u16, protocol: Protocol) -> Decision {
        let denied = self.deny.find(host, |ports| ports.block(port));
        let (reason, found) = match (
            denied.rule(),
            self.allow.find(host, |ports| ports.allow(port)),
        ) {
            (Some(_), _) => (Reason::Blocked, denied),
            (None, found @ Found::Rule(_)) => (Reason::Rule, found),
            (None, found) => match (self.open, host, found) {
                (true, Host::Name(_), _) => (Reason::Default, Found::Nothing),
                (true, Host::Address(address), _) if Class::of(*address) == Class::Public => {
                    (Reason::Default, Found::Nothing)
                }
                (_, _, Found::OtherPort(_)) => (Reason::Port, found),
                (_, Host::Address(address), _) if Class::of(*address) != Class::Public => {
                    (Reason::Closed(Class::of(*address)), found)
                }
                _ => (Reason::NoRule, found),
            },
        };
        self.decision(host, Some(port), protocol, reason, found)
    }

    /// Whether a name may be looked up: whether it may be reached on any port.
    pub fn decide_name(&self, host: &Host) -> Decision {
        let denied = self.deny.find(host, |ports| ports.block(0));
        let (reason, found) = match (denied, self.allow.find(host, |_| true)) {
            (Found::Rule(_), _) => (Reason::Blocked, denied),
            (_, found @ Found::Rule(_)) => (Reason::Rule, found),
            (_, found) if self.open => (Reason::Default, found),
            (_, found) => (Reason::NoRule, found),
        };
        self.decision(host, None, Protocol::Dns, reason, found)
    }

    /// Whether an address that an allowed name led to may be dialled.
    pub fn check_address(&self, address: IpAddr, port: u16) -> Result<(), Reason> {
        let host = Host::Address(canonical(address));
        let class = Class::of(address);
        let blocked = self
            .deny
            .find(&host, |ports| ports.block(port))
            .rule()
            .is_some();
        let named = || {
            self.allow
                .find(&host, |ports| ports.allow(port))
                .rule()
                .is_some()
        };
        match blocked {
            false if class == Class::Public || named() => Ok(()),
            _ => Err(Reason::LedTo(address, class)),
        }
    }

    fn decision(
        &self,
        host: &Host,
        port: Option<u16>,
        protocol: Protocol,
        reason: Reason,
        found: Found<'_>,
    ) -> Decision {
        let entry = found.any();
        Decision {
            allowed: matches!(reason, Reason::Rule | Reason::Default),
            host: Ok(host.clone()),
            port,
            protocol,
            reason,
            rule: entry.map(|entry| entry.rule.clone()),
            layer: entry.map(|entry| entry.layer),
            generation: self.generation,
        }
    }
}
