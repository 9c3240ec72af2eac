//! The layers of rules that a run starts with, and how they are told.

use brig_egress::{Layer, LayerKind, RuleSet};
use brig_hosts::{Class, HostError, Pattern, Rule};
use brig_policy::{Document, PolicySet, Verdict};

use crate::user::UserConfig;

/// Hosts that are named on one line of the summary.
const NAMED: usize = 8;

/// What a run may reach, by who says so.
#[derive(Clone, Debug)]
pub struct Network {
    pub layers: Vec<Layer>,
    /// `network_default: allow`: all public hosts that nobody blocks.
    pub open: bool,
}

impl Network {
    /// What any layer allows is allowed, but for what the user blocks.
    pub fn new(
        policies: Option<&PolicySet>,
        agent_file: &[Rule],
        user: &UserConfig,
        run: &[Rule],
    ) -> Result<Self, HostError> {
        let documents = policies.map_or(&[][..], PolicySet::documents);
        let allow = |kind, rules: &[Rule]| Layer::new(kind).allow(rules.iter().cloned());
        let layers = [
            Layer::new(LayerKind::Policy).allow(held_by_all(documents)?),
            allow(LayerKind::Agent, agent_file),
            allow(LayerKind::User, user.allow()).deny(user.block().iter().cloned()),
            allow(LayerKind::Run, run),
        ];
        let said = |layer: &Layer| !layer.allow.is_empty() || !layer.deny.is_empty();
        Ok(Self {
            layers: layers.into_iter().filter(said).collect(),
            open: !documents.is_empty() && documents.iter().all(|document| is_open(document)),
        })
    }

    /// Nothing may be reached.
    pub fn is_off(&self) -> bool {
        !self.open && self.layers.iter().all(|layer| layer.allow.is_empty())
    }

    pub fn rules(&self) -> RuleSet {
        match self.open {
            true => RuleSet::open(self.layers.clone()),
            false => RuleSet::new(self.layers.clone()),
        }
    }

    /// One line for each layer that opens something, and one for what the user blocks. Nothing if
    /// there is no network.
    pub fn summary(&self) -> Vec<String> {
        if self.is_off() {
            return Vec::new();
        }
        let allowed = (self.layers.iter())
            .filter(|layer| !layer.allow.is_empty())
            .map(|layer| format!("{} allows {}", source(layer.kind), named(&layer.allow)));
        let blocked = (self.layers.iter())
            .filter(|layer| !layer.deny.is_empty())
            .map(|layer| format!("{} blocks {}", source(layer.kind), named(&layer.deny)));
        allowed.chain(blocked).collect()
    }
}

fn source(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Policy => "policy",
        LayerKind::Agent => "agent file",
        LayerKind::User => "user config",
        LayerKind::Run => "--allow",
        LayerKind::Session => "session",
    }
}

fn named(rules: &[Rule]) -> String {
    let mut text: Vec<String> = rules.iter().take(NAMED).map(ToString::to_string).collect();
    if rules.len() > NAMED {
        text.push(format!("and {} more", rules.len() - NAMED));
    }
    let hosts = if rules.len() == 1 { "host" } else { "hosts" };
    format!("{} {hosts}: {}", rules.len(), text.join(", "))
}

fn is_open(document: &Document) -> bool {
    document.defaults().network.value == Verdict::Allow
}

/// Whether an open network holds this too. Of a whole range it is not asked.
fn is_public(rule: &Rule) -> bool {
    match rule.pattern() {
        Pattern::Name(_) | Pattern::Below(_) => true,
        Pattern::Address(address) => Class::of(*address) == Class::Public,
        Pattern::Network { .. } => false,
    }
}

/// Policies hold together: of what one allows, that which no other closes.
fn held_by_all<D: AsRef<Document>>(documents: &[D]) -> Result<Vec<Rule>, HostError> {
    let mut lists = Vec::new();
    for document in documents {
        let hosts = document.as_ref().network_allowlist().iter();
        let rules: Result<Vec<Rule>, _> = hosts
            .map(|given| Rule::parse(&given.value.to_string()))
            .collect();
        lists.push((is_open(document.as_ref()), rules?));
    }
    let mut held: Vec<Rule> = Vec::new();
    for (place, (_, rules)) in lists.iter().enumerate() {
        let others = || (lists.iter().enumerate()).filter(|(other, _)| *other != place);
        for rule in rules {
            let by_all = others().all(|(_, (open, own))| {
                (*open && is_public(rule)) || own.iter().any(|own| own.covers(rule))
            });
            if by_all && !held.contains(rule) {
                held.push(rule.clone());
            }
        }
    }
    Ok(held)
}
