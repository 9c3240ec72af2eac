//! A config under policies: what they limit, set, show and ask for.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use brig_egress::{Class, Layer, LayerKind, Pattern, Rule};
use brig_policy::{CommandList, CommandMode, Commands, Document, Given, PolicySet, Verdict};

use crate::config::{Limit, MIB, MountSpec, SessionPolicies};
use crate::{Control, Error, Result, SessionConfig};

impl SessionConfig {
    /// The limits of the policies apply: they take the place of defaults, and of a limit that was
    /// asked for the stricter applies. What a policy asks of the network, of commands and of tools
    /// becomes a need, so that a backend that cannot enforce it is refused. What this config itself
    /// needs, no policy waives. The policies stay with the session and are asked before anything runs
    /// in it.
    pub fn under(mut self, policies: Arc<PolicySet>) -> Result<Self> {
        let required = self.needs().clone();
        for document in policies.documents() {
            self.apply_limits(document);
            self.set_variables(document)?;
            self.mount_directories(document);
            self.ask_for_controls(document, &required);
        }
        self.needs.0.extend(commands(policies.commands()));
        self.open_network(&policies);
        self.policies = SessionPolicies(Some(policies));
        Ok(self)
    }

    /// What a policy sets, an execution can't set otherwise either.
    pub(crate) fn check_variables(&self, env: &[(String, String)]) -> Result<()> {
        let documents = self.policies().into_iter().flat_map(|set| set.documents());
        for document in documents {
            for (name, given) in document.env() {
                let set = env.iter().find(|(other, _)| other == name);
                if set.is_some_and(|(_, value)| *value != given.value) {
                    return Err(set_already(name, document));
                }
            }
        }
        Ok(())
    }

    fn apply_limits(&mut self, document: &Document) {
        let (own, given) = (&mut self.limits, document.limits());
        let value = |given: &Option<Given<u64>>| given.as_ref().map(|given| given.value);
        let mib = |given| value(given).map(|mib| mib.saturating_mul(MIB));
        let seconds = value(&given.timeout_seconds).map(std::time::Duration::from_secs);
        tighten(&mut own.timeout, seconds);
        tighten(&mut own.memory_bytes, mib(&given.max_memory_mb));
        tighten(
            &mut own.cpus,
            given.max_cpu.as_ref().map(|given| given.value),
        );
        let processes = value(&given.max_processes).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        tighten(&mut own.processes, processes);
        tighten(&mut own.disk_bytes, mib(&given.max_disk_mb));
        tighten(&mut own.output_bytes, value(&given.max_output_bytes));
    }

    /// What a policy sets, nobody sets otherwise.
    fn set_variables(&mut self, document: &Document) -> Result<()> {
        for (name, given) in document.env() {
            match self.env.iter().find(|(known, _)| known == name) {
                None => self.env.push((name.clone(), given.value.clone())),
                Some((_, value)) if *value == given.value => {}
                Some(_) => return Err(set_already(name, document)),
            }
        }
        Ok(())
    }

    fn mount_directories(&mut self, document: &Document) {
        let mounts = document.mounts();
        let directories = [
            (&mounts.input_dir, "/input", false),
            (&mounts.output_dir, "/output", true),
        ];
        for (given, target, writable) in directories {
            if let Some(given) = given {
                let source = PathBuf::from(&given.value);
                self.mounts.push(MountSpec {
                    source: std::path::absolute(&source).unwrap_or(source),
                    target: target.into(),
                    writable,
                });
            }
        }
    }

    /// All policies apply together here too: what one of them closes stays closed.
    fn open_network(&mut self, policies: &PolicySet) {
        let lists: Vec<(bool, Vec<Rule>)> = (policies.documents().iter())
            .map(|document| (is_open(document), hosts(document)))
            .collect();
        self.network.open |= !lists.is_empty() && lists.iter().all(|(open, _)| *open);
        let mut allowed: Vec<Rule> = Vec::new();
        for (index, (_, rules)) in lists.iter().enumerate() {
            let others = || (lists.iter().enumerate()).filter(|(other, _)| *other != index);
            for rule in rules {
                let by_all = others().all(|(_, (open, own))| {
                    (*open && is_public(rule)) || own.iter().any(|own| own.covers(rule))
                });
                if by_all && !allowed.contains(rule) {
                    allowed.push(rule.clone());
                }
            }
        }
        if !allowed.is_empty() {
            let layer = Layer::new(LayerKind::Policy).allow(allowed);
            self.network.layers.push(layer);
        }
    }

    fn ask_for_controls(&mut self, document: &Document, required: &BTreeSet<Control>) {
        let asked = [
            (
                Control::NetworkHosts,
                is_open(document) || !document.network_allowlist().is_empty(),
            ),
            (Control::Tools, !document.tool_allowlist().is_empty()),
        ];
        let asked = asked.into_iter().filter(|(_, asked)| *asked);
        self.needs.0.extend(asked.map(|(control, _)| control));
        let waived = document.waive().iter();
        let waived = waived.filter_map(|name| Control::from_name(&name.value));
        let waived = waived.filter(|control| !required.contains(control));
        self.waive.extend(waived);
    }
}

/// The controls that enforce lists of commands. They also record what the lists deny.
fn commands(commands: &Commands) -> Vec<Control> {
    let enforced = |list: &&CommandList| list.mode == CommandMode::Enforce;
    let whole = |list: &CommandList| list.entries.iter().any(|one| one.arguments.is_empty());
    let parts = |list: &CommandList| list.entries.iter().any(|one| !one.arguments.is_empty());
    let mut asked = Vec::new();
    if commands.denied.iter().filter(enforced).any(whole) {
        asked.push(Control::CommandDeny);
    }
    if commands.allowed.iter().any(|list| enforced(&list)) {
        asked.push(Control::CommandAllow);
    }
    if commands.denied.iter().chain(&commands.allowed).any(parts) {
        asked.push(Control::CommandArguments);
    }
    if !commands.is_empty() {
        asked.push(Control::CommandRecord);
    }
    asked
}

fn is_open(document: &Document) -> bool {
    document.defaults().network.value == Verdict::Allow
}

fn hosts(document: &Document) -> Vec<Rule> {
    let given = document.network_allowlist().iter();
    given.map(|given| given.value.clone()).collect()
}

/// Whether an open network includes this host. A whole range is not looked at.
fn is_public(rule: &Rule) -> bool {
    match rule.pattern() {
        Pattern::Name(_) | Pattern::Below(_) => true,
        Pattern::Address(address) => Class::of(*address) == Class::Public,
        Pattern::Network { .. } => false,
    }
}

fn set_already(name: &str, document: &Document) -> Error {
    Error::InvalidConfig {
        what: "variable",
        problem: format!("`{name}` is set by policy `{}`", document.name()),
    }
}

fn tighten<T: PartialOrd + Copy>(own: &mut Limit<T>, given: Option<T>) {
    if let Some(given) = given {
        let stricter = own.asked && own.value < given;
        *own = Limit::asked(if stricter { own.value } else { given });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brig_policy::{CONTROLS, Compat};

    use super::*;

    fn policies(text: &str) -> Arc<PolicySet> {
        let loaded = Document::load("p.yaml", text, Compat::Strict);
        Arc::new(PolicySet::new(vec![
            loaded.expect("a valid policy").document,
        ]))
    }

    #[test]
    fn policies_and_sandboxes_speak_of_the_same_controls() {
        let mut known = CONTROLS.to_vec();
        let mut own = Control::ALL.map(Control::name).to_vec();
        known.sort_unstable();
        own.sort_unstable();
        assert_eq!(known, own);
    }

    #[test]
    fn a_limit_of_a_policy_takes_the_place_of_a_default_but_not_of_a_stricter_wish() {
        let policies =
            policies("defaults: {max_memory_mb: 2048, timeout_seconds: 90, max_cpu: 2}\n");
        let mut config = SessionConfig::default();
        config.limits.timeout = Limit::asked(Duration::from_secs(5));
        config.limits.cpus = Limit::asked(8.0);
        let config = config.under(policies).expect("valid");
        assert_eq!(config.limits.memory_bytes, Limit::asked(2048 * MIB));
        assert_eq!(config.limits.timeout, Limit::asked(Duration::from_secs(5)));
        assert_eq!(config.limits.cpus, Limit::asked(2.0));
        assert!(!config.limits.processes.asked);
    }

    #[test]
    fn what_a_policy_lists_becomes_a_need() {
        let needs = |text: &str| {
            let config = SessionConfig::default().under(policies(text));
            config
                .expect("valid")
                .needs()
                .iter()
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(needs("name: x\n"), []);
        assert_eq!(
            needs("network_allowlist: [a.org]\n"),
            [Control::NetworkHosts]
        );
        assert_eq!(
            needs("defaults: {network_default: allow}\n"),
            [Control::NetworkHosts]
        );
        let record = Control::CommandRecord;
        assert_eq!(
            needs("command_denylist: [curl]\n"),
            [Control::CommandDeny, record]
        );
        assert_eq!(
            needs("command_allowlist: []\n"),
            [Control::CommandAllow, record]
        );
        assert_eq!(
            needs("command_denylist: [git push]\n"),
            [Control::CommandArguments, record]
        );
        assert_eq!(
            needs("command_denylist: [curl]\ncommand_mode: observe\n"),
            [record]
        );
        assert_eq!(needs("tool_allowlist: [x]\n"), [Control::Tools]);
    }

    #[test]
    fn what_one_policy_closes_no_other_opens() {
        let open = "defaults: {network_default: allow}\nnetwork_allowlist: [10.0.0.1]\n";
        let wide = "network_allowlist: [\"*.a.org\", b.org, 10.0.0.1]\n";
        let narrow = "network_allowlist: [x.a.org, c.org]\n";
        let network = |texts: &[&str]| {
            let load = |text: &&str| Document::load("p.yaml", text, Compat::Strict);
            let documents = texts.iter().map(|text| load(text).expect("valid").document);
            let set = Arc::new(PolicySet::new(documents.collect()));
            let config = SessionConfig::default().under(set).expect("valid");
            let rules = config.network.layers.iter().flat_map(|layer| &layer.allow);
            let rules: Vec<String> = rules.map(ToString::to_string).collect();
            (config.network.open, rules.join(" "))
        };
        assert_eq!(network(&[wide, narrow]), (false, "x.a.org".into()));
        assert_eq!(
            network(&[open, wide]),
            (false, "10.0.0.1 *.a.org b.org".into())
        );
        // An open network has no private addresses.
        let private = "network_allowlist: [10.0.0.2]\n";
        assert_eq!(network(&[open, private]), (false, String::new()));
        assert_eq!(network(&[open, open]), (true, "10.0.0.1".into()));
        assert_eq!(network(&[wide, "name: silent\n"]), (false, String::new()));
    }

    #[test]
    fn what_a_policy_sets_nobody_sets_otherwise() {
        let policies = policies("env: {A: b}\nsandbox_mounts: {input_dir: /data}\nwaive: [cpu]\n");
        let config = SessionConfig::default()
            .under(policies.clone())
            .expect("valid");
        assert_eq!(config.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(config.mounts[0].target, PathBuf::from("/input"));
        assert!(config.waive.contains(&Control::Cpu) && !config.mounts[0].writable);
        let other = SessionConfig {
            env: vec![("A".into(), "c".into())],
            ..SessionConfig::default()
        };
        assert!(other.under(policies).is_err());
    }
}
