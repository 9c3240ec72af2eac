//! The layers of network rules besides the policies, and how they are summarised.

use brig_egress::{Layer, LayerKind};
use brig_hosts::Rule;

use crate::user::UserConfig;

/// Hosts that are named on one line of the summary.
const NAMED: usize = 8;

/// The rules of the agent file, the user and the flags of a run. What any layer allows is allowed, but
/// for what the user blocks.
pub fn layers(agent_file: &[Rule], user: &UserConfig, run: &[Rule]) -> Vec<Layer> {
    let allow = |kind, rules: &[Rule]| Layer::new(kind).allow(rules.iter().cloned());
    let layers = [
        allow(LayerKind::Agent, agent_file),
        user_layer(user),
        allow(LayerKind::Run, run),
    ];
    let said = |layer: &Layer| !layer.allow.is_empty() || !layer.deny.is_empty();
    layers.into_iter().filter(said).collect()
}

/// What the user allows and blocks.
pub fn user_layer(user: &UserConfig) -> Layer {
    Layer::new(LayerKind::User)
        .allow(user.allow().iter().cloned())
        .deny(user.block().iter().cloned())
}

/// One line for each layer that opens something, and one for each that blocks.
pub fn summary(layers: &[Layer]) -> Vec<String> {
    let line = |kind: LayerKind, verb: &str, rules: &[Rule]| {
        (!rules.is_empty()).then(|| format!("{} {verb} {}", source(kind), named(rules)))
    };
    let allowed = (layers.iter()).filter_map(|layer| line(layer.kind, "allows", &layer.allow));
    let blocked = (layers.iter()).filter_map(|layer| line(layer.kind, "blocks", &layer.deny));
    allowed.chain(blocked).collect()
}

/// One line for each rule, with its layer. What is allowed comes first.
pub fn all_rules(layers: &[Layer]) -> Vec<String> {
    let line = |kind: LayerKind, verb: &str, rule: &Rule| format!("{} {verb} {rule}", source(kind));
    let allowed = (layers.iter()).flat_map(|layer| {
        let rules = layer.allow.iter();
        rules.map(|rule| line(layer.kind, "allows", rule))
    });
    let blocked = (layers.iter()).flat_map(|layer| {
        let rules = layer.deny.iter();
        rules.map(|rule| line(layer.kind, "blocks", rule))
    });
    allowed.chain(blocked).collect()
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
