//! Which layer opens what.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use brig_config::{Network, UserConfig};
use brig_egress::{Host, LayerKind, Protocol, Reason};
use brig_hosts::Rule;
use brig_policy::{Compat, Document, PolicySet};

fn policies(texts: &[&str]) -> PolicySet {
    let load = |text: &&str| {
        Document::load("p.yaml", text, Compat::Strict)
            .unwrap()
            .document
    };
    PolicySet::new(texts.iter().map(load).collect())
}

fn user(text: &str) -> UserConfig {
    UserConfig::parse("config.yaml", text.as_bytes()).unwrap().0
}

fn rules(hosts: &[&str]) -> Vec<Rule> {
    hosts.iter().map(|host| host.parse().unwrap()).collect()
}

fn decide(network: &Network, host: &str) -> (bool, Option<LayerKind>) {
    let host = Host::parse(host).unwrap();
    let decision = network.rules().decide(&host, 443, Protocol::Connect);
    (decision.allowed, decision.layer)
}

#[test]
fn every_layer_opens_its_own_and_the_user_blocks_them_all() {
    let text = "sandbox_allowlist: [user.org]\nsandbox_blocklist: [\"*.bad.org\"]\n";
    let policies = policies(&["network_allowlist: [policy.org, x.bad.org]\n"]);
    let agent = rules(&["agent.org", "y.bad.org"]);
    let run = rules(&["run.org", "z.bad.org"]);
    let network = Network::new(Some(&policies), &agent, &user(text), &run).unwrap();
    for (host, layer) in [
        ("policy.org", LayerKind::Policy),
        ("agent.org", LayerKind::Agent),
        ("user.org", LayerKind::User),
        ("run.org", LayerKind::Run),
    ] {
        assert_eq!(decide(&network, host), (true, Some(layer)), "{host}");
    }
    for host in ["x.bad.org", "y.bad.org", "z.bad.org"] {
        assert_eq!(
            decide(&network, host),
            (false, Some(LayerKind::User)),
            "{host}"
        );
    }
    assert_eq!(decide(&network, "other.org"), (false, None));
    assert_eq!(
        network.summary(),
        [
            "policy allows 2 hosts: policy.org, x.bad.org",
            "agent file allows 2 hosts: agent.org, y.bad.org",
            "user config allows 1 host: user.org",
            "--allow allows 2 hosts: run.org, z.bad.org",
            "user config blocks 1 host: *.bad.org",
        ]
    );
}

#[test]
fn nothing_said_is_no_network_and_no_summary() {
    let network = Network::new(None, &[], &user("sandbox_blocklist: [bad.org]\n"), &[]).unwrap();
    assert!(network.is_off() && network.summary().is_empty());
    let closed = policies(&["name: p\n"]);
    assert!(
        Network::new(Some(&closed), &[], &user(""), &[])
            .unwrap()
            .is_off()
    );
}

#[test]
fn an_open_policy_opens_what_is_public_and_nothing_else() {
    let open = policies(&["defaults: {network_default: allow}\n"]);
    let network = Network::new(
        Some(&open),
        &[],
        &user("sandbox_blocklist: [bad.org]\n"),
        &[],
    )
    .unwrap();
    assert!(network.open && !network.is_off());
    assert!(decide(&network, "any.org").0);
    assert!(!decide(&network, "bad.org").0);
    let private = Host::parse("10.0.0.1").unwrap();
    let decision = network.rules().decide(&private, 443, Protocol::Connect);
    assert!(matches!(decision.reason, Reason::Closed(_)), "{decision}");
}

#[test]
fn policies_hold_together() {
    let open = "defaults: {network_default: allow}\nnetwork_allowlist: [10.0.0.1]\n";
    let wide = "network_allowlist: [\"*.a.org\", b.org, 10.0.0.1]\n";
    let narrow = "network_allowlist: [x.a.org, c.org]\n";
    let both = |first, second| {
        let policies = policies(&[first, second]);
        Network::new(Some(&policies), &[], &user(""), &[]).unwrap()
    };
    let network = both(wide, narrow);
    assert_eq!(network.layers[0].allow, rules(&["x.a.org"]));
    let network = both(open, wide);
    assert!(!network.open, "one that is closed closes");
    assert_eq!(
        network.layers[0].allow,
        rules(&["10.0.0.1", "*.a.org", "b.org"])
    );
    let network = both(open, "network_allowlist: [10.0.0.2]\n");
    assert!(network.is_off(), "an open network has no private addresses");
    assert!(both(open, open).open);
    assert!(both(wide, "name: silent\n").is_off());
}

#[test]
fn many_hosts_are_counted() {
    let hosts: Vec<String> = (0..20).map(|n| format!("h{n}.org")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let network = Network::new(None, &[], &user(""), &rules(&hosts)).unwrap();
    let [line] = &network.summary()[..] else {
        panic!()
    };
    assert!(line.starts_with("--allow allows 20 hosts: h0.org, "));
    assert!(line.ends_with(", and 12 more"));
}
