//! Layers of rules, and decisions by them.

mod index;
mod live;

use std::fmt;
use std::net::IpAddr;

use brig_hosts::{Class, Host, Rule, canonical};
use serde::{Deserialize, Serialize};

use crate::decision::{Decision, Protocol, Reason};
use index::{Found, Index};

pub use live::Rules;

/// Where rules come from, in the order in which they are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// The policy.
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
    /// The source of these rules. Records name it with the rule that decided.
    pub kind: LayerKind,
    /// What may be reached, unless a layer denies it. Without a port, a rule means ports 80 and 443.
    pub allow: Vec<Rule>,
    /// Takes precedence over the allow rules of all layers. Without a port, a rule means every port.
    pub deny: Vec<Rule>,
}

impl Layer {
    /// A layer without rules. It allows and denies nothing.
    pub fn new(kind: LayerKind) -> Self {
        Self {
            kind,
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }

    /// Adds rules to the allowlist of this layer.
    pub fn allow(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.allow.extend(rules);
        self
    }

    /// Adds rules to the blocklist of this layer.
    pub fn deny(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.deny.extend(rules);
        self
    }
}

/// All layers, indexed: a decision does not take longer with more rules.
#[derive(Debug)]
pub struct RuleSet {
    layers: Vec<Layer>,
    open: bool,
    generation: u64,
    allow: Index,
    /// The allow rules for any protocol.
    raw: Index,
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
        fn all(
            layers: &[Layer],
            of: fn(&Layer) -> &[Rule],
        ) -> impl Iterator<Item = (LayerKind, &Rule)> {
            let of_layer = move |layer| of(layer).iter().map(|rule| (layer.kind, rule));
            layers.iter().flat_map(of_layer)
        }
        let allow = || all(&layers, |layer| &layer.allow);
        Self {
            open,
            generation,
            allow: Index::new(allow()),
            raw: Index::new(allow().filter(|(_, rule)| rule.is_raw())),
            deny: Index::new(all(&layers, |layer| &layer.deny)),
            layers,
        }
    }

    /// The layers, in the order in which they are searched.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Whether hosts without a rule are allowed (`network_default: allow`).
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// How often the rules were changed: 0 at first, and one more with each [`Rules::change`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a connection to this host and port may be made. A name that is allowed may still
    /// lead to an address that is not: see [`check_address`](Self::check_address).
    pub fn decide(&self, host: &Host, port: u16, protocol: Protocol) -> Decision {
        let denied = self.deny.find(host, |rule| rule.ports().block(port));
        let (reason, found) = match (denied.rule(), self.allowing(host, port, protocol)) {
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

    /// The rule that allows it. One that allows any protocol comes first, so that what was not inspected is
    /// recorded with that rule. Requests to the proxy are always inspected.
    fn allowing(&self, host: &Host, port: u16, protocol: Protocol) -> Found<'_> {
        let fits = |rule: &Rule| rule.ports().allow(port);
        let raw = match protocol {
            Protocol::Http => Found::Nothing,
            _ => self.raw.find(host, fits),
        };
        match raw {
            Found::Rule(_) => raw,
            _ => self.allow.find(host, fits),
        }
    }

    /// Whether any protocol is allowed there.
    pub fn decide_raw(&self, host: &Host, port: u16, protocol: Protocol) -> Decision {
        let decision = self.decide(host, port, protocol);
        match decision.allowed && !decision.raw {
            true if self.is_open_to_raw(port) => decision.as_raw(),
            true => decision.but(Reason::Raw("only TLS and HTTP are allowed there")),
            false => decision,
        }
    }

    /// Whether an open network allows any protocol there. Not on the ports of TLS and HTTP.
    pub(crate) fn is_open_to_raw(&self, port: u16) -> bool {
        self.open && port != 80 && port != 443
    }

    /// Whether a name may be looked up: whether it may be reached on any port.
    pub fn decide_name(&self, host: &Host) -> Decision {
        let denied = self.deny.find(host, |rule| rule.ports().block(0));
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
            .find(&host, |rule| rule.ports().block(port))
            .rule()
            .is_some();
        let named = || {
            self.allow
                .find(&host, |rule| rule.ports().allow(port))
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
        let checked = matches!(protocol, Protocol::Http | Protocol::Dns);
        let by_rule = matches!(reason, Reason::Rule) && !checked;
        Decision {
            allowed: matches!(reason, Reason::Rule | Reason::Default),
            raw: by_rule && entry.is_some_and(|entry| entry.rule.is_raw()),
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
