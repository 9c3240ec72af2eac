//! Addresses: one form of each, checked before they are dialled. Each refusal stands beside the same
//! thing allowed.

use crate::common::server::Server;
use crate::common::{Lab, OTHER, PUBLIC, allowing, lab, rules, socks};
use brig_egress::{Layer, LayerKind, RuleSet};

#[test]
fn an_address_needs_a_rule_that_names_it_however_it_is_written() {
    let server = Server::plain();
    let lab = lab(&server);
    let tries = [
        ("127.0.0.1:80", "network.address"),
        ("2130706433:80", "network.address"),
        ("0x7f.1:80", "network.address"),
        ("0177.0.0.1:80", "network.address"),
        ("127.1:80", "network.address"),
        ("[::1]:80", "network.address"),
        ("[::ffff:127.0.0.1]:80", "network.address"),
        ("[::127.0.0.1]:80", "network.address"),
        ("[::ffff:169.254.169.254]:80", "network.address"),
        ("[64:ff9b::a9fe:a9fe]:80", "network.address"),
        ("[2002:a9fe:a9fe::]:80", "network.address"),
        ("169.254.169.254:80", "network.address"),
        ("0.0.0.0:80", "network.address"),
        ("100.64.0.1:80", "network.address"),
        ("10.0.0.1:80", "network.address"),
        ("224.0.0.1:80", "network.address"),
        ("93.184.216.34:80", "network.no-rule"),
    ];
    for (target, code) in tries {
        let (_, head) = lab.tunnel(target);
        assert!(
            head.contains(&format!("x-brig-reason: {code}\r\n")),
            "{target}: {head}"
        );
        let socks = socks(&lab, target);
        assert_eq!(socks.get(1), Some(&2), "{target} over SOCKS");
    }
    // An address of one interface is none of the whole machine.
    for zone in ["[fe80::1%eth0]:80", "[fe80::1%25eth0]:80"] {
        let (_, head) = lab.tunnel(zone);
        let refused = head.starts_with("HTTP/1.1 400") || head.starts_with("HTTP/1.1 403");
        assert!(refused, "{zone}: {head}");
    }
    assert!(lab.dialled().is_empty());
    // And with the rule, each form of the same address is let through.
    let open = Lab::new(allowing(&["127.0.0.1:80"]));
    open.route("127.0.0.1", 80, server.address);
    for target in [
        "127.0.0.1:80",
        "0x7f.1:80",
        "[::ffff:127.0.0.1]:80",
        "2130706433:80",
    ] {
        let (_, head) = open.tunnel(target);
        assert!(head.starts_with("HTTP/1.1 200"), "{target}: {head}");
    }
    assert!(
        open.dialled()
            .iter()
            .all(|address| address == "127.0.0.1:80")
    );
}

#[test]
fn an_allowed_name_may_not_lead_inside() {
    let server = Server::plain();
    let inside = [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.1.1",
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "0.0.0.0",
        "::",
        "fe80::1",
        "fc00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "224.0.0.1",
        "198.18.0.5",
    ];
    for address in inside {
        let lab = lab(&server);
        lab.name("good.example", &[address]);
        let refused = lab.get("http://good.example/");
        assert!(
            refused.contains("x-brig-reason: network.address\r\n"),
            "{address}: {refused}"
        );
        assert!(lab.dialled().is_empty(), "{address}");
    }
    let metadata = Lab::new(allowing(&["metadata.google.internal"]));
    metadata.name("metadata.google.internal", &["169.254.169.254"]);
    let refused = metadata.get("http://metadata.google.internal/");
    assert!(refused.contains("network.address\r\n"), "{refused}");
    assert!(metadata.dialled().is_empty());
    // The same with a rule for the address, and a name with one address of each kind.
    let open = Lab::new(allowing(&["good.example", "10.0.0.1"]));
    open.name("good.example", &["10.0.0.1"])
        .route("10.0.0.1", 80, server.address);
    assert!(open.get("http://good.example/").starts_with("HTTP/1.1 200"));
    let mixed = lab(&server);
    mixed.name("good.example", &["127.0.0.1", PUBLIC, "10.0.0.1"]);
    assert!(
        mixed
            .get("http://good.example/")
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(mixed.dialled(), [format!("{PUBLIC}:80")]);
}

#[test]
fn a_name_that_changes_its_address_gains_nothing() {
    let server = Server::plain();
    let lab = lab(&server);
    lab.route("127.0.0.1", 80, server.address);
    lab.name_in_turn("good.example", &[&[PUBLIC], &["127.0.0.1"]]);
    assert!(lab.get("http://good.example/1").starts_with("HTTP/1.1 200"));
    assert_eq!(
        lab.looked_up().len(),
        1,
        "looked up once, and that address dialled"
    );
    let second = lab.get("http://good.example/2");
    assert!(
        second.contains("x-brig-reason: network.address"),
        "{second}"
    );
    assert_eq!(lab.dialled(), [format!("{PUBLIC}:80")]);
}

#[test]
fn an_open_network_stays_closed_inside() {
    let server = Server::plain();
    let blocked = Layer::new(LayerKind::User).deny(rules(&["*.bad.example", "93.184.216.35"]));
    let lab = Lab::new(RuleSet::open(vec![blocked]));
    lab.name("any.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address);
    lab.name("inside.example", &["10.0.0.1"])
        .name("to-blocked.example", &[OTHER]);
    let any = lab.get("http://any.example/");
    assert!(any.starts_with("HTTP/1.1 200"), "{any}");
    for (url, code) in [
        ("http://inside.example/", "network.address"),
        ("http://10.0.0.1/", "network.address"),
        ("http://a.bad.example/", "network.blocked"),
        ("http://to-blocked.example/", "network.address"),
    ] {
        let refused = lab.get(url);
        assert!(
            refused.contains(&format!("x-brig-reason: {code}\r\n")),
            "{url}: {refused}"
        );
    }
    assert_eq!(lab.dialled(), [format!("{PUBLIC}:80")]);
}
