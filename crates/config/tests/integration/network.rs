//! Which layer opens what.

use brig_config::{UserConfig, layers, summary};
use brig_egress::{Host, LayerKind, Protocol, RuleSet};
use brig_hosts::Rule;

fn user(text: &str) -> UserConfig {
    UserConfig::parse("config.yaml", text.as_bytes()).unwrap().0
}

fn rules(hosts: &[&str]) -> Vec<Rule> {
    hosts.iter().map(|host| host.parse().unwrap()).collect()
}

fn decide(rules: &RuleSet, host: &str) -> (bool, Option<LayerKind>) {
    let host = Host::parse(host).unwrap();
    let decision = rules.decide(&host, 443, Protocol::Connect);
    (decision.allowed, decision.layer)
}

#[test]
fn every_layer_opens_its_own_and_the_user_blocks_them_all() {
    let text = "sandbox_allowlist: [user.org]\nsandbox_blocklist: [\"*.bad.org\"]\n";
    let agent = rules(&["agent.org", "y.bad.org"]);
    let run = rules(&["run.org", "z.bad.org"]);
    let layers = layers(&agent, &user(text), &run);
    let set = RuleSet::new(layers.clone());
    for (host, layer) in [
        ("agent.org", LayerKind::Agent),
        ("user.org", LayerKind::User),
        ("run.org", LayerKind::Run),
    ] {
        assert_eq!(decide(&set, host), (true, Some(layer)), "{host}");
    }
    let open = RuleSet::open(layers.clone());
    assert!(decide(&open, "other.org").0, "control");
    for host in ["y.bad.org", "z.bad.org", "any.bad.org"] {
        for rules in [&set, &open] {
            assert_eq!(
                decide(rules, host),
                (false, Some(LayerKind::User)),
                "{host}"
            );
        }
    }
    assert_eq!(decide(&set, "other.org"), (false, None));
    assert_eq!(
        summary(&layers),
        [
            "agent file allows 2 hosts: agent.org, y.bad.org",
            "user config allows 1 host: user.org",
            "--allow allows 2 hosts: run.org, z.bad.org",
            "user config blocks 1 host: *.bad.org",
        ]
    );
}

#[test]
fn no_rules_make_no_layer() {
    assert!(layers(&[], &user(""), &[]).is_empty());
}

#[test]
fn many_hosts_are_counted() {
    let hosts: Vec<String> = (0..20).map(|n| format!("h{n}.org")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let lines = summary(&layers(&[], &user(""), &rules(&hosts)));
    let [line] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert!(line.starts_with("--allow allows 20 hosts: h0.org, "));
    assert!(line.ends_with(", and 12 more"));
}
