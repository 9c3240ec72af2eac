//! Decisions of many layers, beside a slow and obvious reference.

use brig_egress::{Class, Decision, Host, Layer, LayerKind, Protocol, Reason, Rule, RuleSet};

const KINDS: [LayerKind; 5] = [
    LayerKind::Policy,
    LayerKind::Agent,
    LayerKind::User,
    LayerKind::Run,
    LayerKind::Session,
];

fn rule(text: &str) -> Rule {
    Rule::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Looks at every rule of every layer, one after the other.
fn reference(
    layers: &[Layer],
    open: bool,
    host: &Host,
    port: u16,
) -> (bool, &'static str, Option<(LayerKind, String)>) {
    for layer in layers {
        for rule in &layer.deny {
            if rule.blocks(host, port) {
                return (
                    false,
                    "network.blocked",
                    Some((layer.kind, rule.to_string())),
                );
            }
        }
    }
    for layer in layers {
        for rule in &layer.allow {
            if rule.allows(host, port) {
                return (true, "network.rule", Some((layer.kind, rule.to_string())));
            }
        }
    }
    let inside = matches!(host, Host::Address(address) if Class::of(*address) != Class::Public);
    if open && !inside {
        return (true, "network.default", None);
    }
    for layer in layers {
        for rule in &layer.allow {
            if rule.pattern().matches(host) {
                return (false, "network.port", Some((layer.kind, rule.to_string())));
            }
        }
    }
    match inside {
        true => (false, "network.address", None),
        false => (false, "network.no-rule", None),
    }
}

fn told(decision: &Decision) -> (bool, &'static str, Option<(LayerKind, String)>) {
    let by = decision
        .layer
        .zip(decision.rule.as_ref().map(ToString::to_string));
    (decision.allowed, decision.reason.code(), by)
}

/// A fixed seed: a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Few enough that they meet.
    fn name(&mut self) -> String {
        let mut name = self
            .pick(&[
                "a.example",
                "b.example",
                "x.a.example",
                "a-example.org",
                "internal",
            ])
            .to_owned();
        for _ in 0..self.below(3) {
            name = format!("{}.{name}", self.pick(&["a", "b", "x", "y"]));
        }
        name
    }

    fn address(&mut self) -> String {
        match self.below(4) {
            0 => format!("10.0.{}.{}", self.below(3), self.below(4)),
            1 => format!("93.184.{}.{}", self.below(3), self.below(4)),
            2 => format!("fd00::{}", self.below(4)),
            _ => format!("2606:4700::{}", self.below(4)),
        }
    }

    fn port(&mut self) -> u16 {
        [80, 443, 22, 8080][self.below(4)]
    }

    fn rule(&mut self) -> Rule {
        let what = match self.below(5) {
            0 | 1 => self.name(),
            2 => format!("*.{}", self.name()),
            3 => self.address(),
            _ => self
                .pick(&[
                    "10.0.0.0/8",
                    "10.0.1.0/24",
                    "93.184.0.0/16",
                    "fd00::/8",
                    "2606:4700::/32",
                    "10.0.0.0/30",
                ])
                .to_owned(),
        };
        let port = match self.below(4) {
            0 | 1 => String::new(),
            2 => ":*".to_owned(),
            _ => format!(":{}", self.port()),
        };
        rule(&if what.contains("::") && !port.is_empty() {
            format!("[{what}]{port}")
        } else {
            what + &port
        })
    }
}

#[test]
fn a_hundred_thousand_decisions_equal_the_reference() {
    let mut random = Random(7);
    let (mut allowed, mut seen) = (0, std::collections::BTreeSet::new());
    for round in 0..1000 {
        let layers: Vec<Layer> = (KINDS.iter())
            .map(|kind| {
                let mut layer = Layer::new(*kind);
                layer.allow = (0..random.below(6)).map(|_| random.rule()).collect();
                layer.deny = (0..random.below(3)).map(|_| random.rule()).collect();
                layer
            })
            .collect();
        let open = round % 4 == 0;
        let set = match open {
            true => RuleSet::open(layers.clone()),
            false => RuleSet::new(layers.clone()),
        };
        for _ in 0..100 {
            let target = match random.below(3) {
                0 => random.address(),
                _ => random.name(),
            };
            let (target, port) = (host(&target), random.port());
            let decision = set.decide(&target, port, Protocol::Connect);
            let expected = reference(&layers, open, &target, port);
            assert_eq!(told(&decision), expected, "{target} {port} {layers:?}");
            allowed += usize::from(decision.allowed);
            seen.insert(expected.1);
            // A name that no port of which is open is not looked up, and the other way round.
            if matches!(target, Host::Name(_)) {
                let any = [80, 443, 22, 8080, 9]
                    .iter()
                    .any(|port| reference(&layers, open, &target, *port).0);
                let all_blocked = set.decide_name(&target).reason == Reason::Blocked;
                assert!(set.decide_name(&target).allowed || !any || all_blocked);
                assert!(!all_blocked || !any, "{target} {layers:?}");
            }
        }
    }
    assert!((20_000..80_000).contains(&allowed), "{allowed}");
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn a_denial_names_what_would_allow_it() {
    let set = RuleSet::new(vec![
        Layer::new(LayerKind::Policy).allow([rule("pypi.org")]),
        Layer::new(LayerKind::User).deny([rule("*.bad.example")]),
        Layer::new(LayerKind::Session).deny([rule("worse.example")]),
    ]);
    for (target, port, text) in [
        (
            "a.com",
            443,
            "`a.com:443` is denied: no rule allows it; `brig sandbox allow a.com` would allow it",
        ),
        (
            "a.com",
            8443,
            "`a.com:8443` is denied: no rule allows it; `brig sandbox allow a.com:8443` would allow it",
        ),
        (
            "pypi.org",
            22,
            "`pypi.org:22` is denied: `pypi.org` (policy) is for other ports; `brig sandbox allow pypi.org:22` would allow it",
        ),
        (
            "10.0.0.1",
            80,
            "`10.0.0.1:80` is denied: it is a private address, and no rule names it; `brig sandbox allow 10.0.0.1:80` would allow it",
        ),
        (
            "::1",
            80,
            "`[::1]:80` is denied: it is a loopback address, and no rule names it; `brig sandbox allow [::1]:80` would allow it",
        ),
        (
            "x.bad.example",
            1,
            "`x.bad.example:1` is denied: blocked by `*.bad.example` (user); `brig sandbox unblock '*.bad.example'` would allow it",
        ),
        (
            "worse.example",
            80,
            "`worse.example:80` is denied: blocked by `worse.example` (session)",
        ),
        (
            "pypi.org",
            443,
            "`pypi.org:443` is allowed: allowed by `pypi.org` (policy)",
        ),
    ] {
        let decision = set.decide(&host(target), port, Protocol::Connect);
        assert_eq!(decision.to_string(), text);
        // And it does: with the rule of the hint, it would be allowed.
        if let Some(entry) = decision
            .hint()
            .as_deref()
            .and_then(|hint| hint.strip_prefix("brig sandbox allow "))
        {
            let with = RuleSet::new(vec![Layer::new(LayerKind::User).allow([rule(entry)])]);
            assert!(
                with.decide(&host(target), port, Protocol::Connect).allowed,
                "{entry}"
            );
        }
    }
}
