//! The grammar: what is taken, what is refused and with which help, and that one thing has one form.

use std::net::IpAddr;

use brig_hosts::{Class, Host, Rule, canonical};
use proptest::prelude::*;

fn rule(text: &str) -> Rule {
    Rule::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn sound_entries_read_back_the_same() {
    for text in [
        "pypi.org",
        "*.github.com",
        "localhost:8080",
        "pypi.org:*",
        "*.pypi.org:8443",
        "10.0.0.1",
        "10.0.0.0/8",
        "10.0.0.0/8:5432",
        "10.0.0.0/8:*",
        "::1",
        "[::1]:443",
        "[::1]:*",
        "fd00::/8",
        "[fd00::/8]:443",
        "xn--bcher-kva.example",
        "_dns.example.com",
        "*.corp.internal",
        "*.internal",
        "db.internal:5432/tcp",
        "*.corp.internal:22/tcp",
        "db.internal:*/tcp",
        "10.0.0.1:5432/tcp",
        "10.0.0.0/8:5432/tcp",
        "[::1]:22/tcp",
        "[fd00::/8]:22/tcp",
    ] {
        assert_eq!(rule(text).to_string(), text);
    }
    for (text, canonical) in [
        ("PyPI.org.", "pypi.org"),
        ("[::1]", "::1"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("ＰyPI。org", "pypi.org"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[64:ff9b::a00:1]:22", "10.0.0.1:22"),
        ("0:0::1", "::1"),
    ] {
        assert_eq!(rule(text).to_string(), canonical);
    }
}

#[test]
fn what_is_no_rule_is_refused_with_its_entry() {
    for text in [
        "",
        "a, b",
        "a,b",
        "a.com，b.com",
        "a b",
        " a.com",
        "a.com\t",
        "a.com\n",
        "a.com\r",
        "a\u{a0}b.com",
        "a\u{2003}b.com",
        "a\u{3000}.com",
        "a\u{2028}.com",
        "a\u{85}.com",
        "a\u{200b}b.com",
        "a\u{feff}.com",
        "a\0.com",
        "*",
        "**",
        "*:443",
        "*:*",
        "**.example.com",
        "https://pypi.org/simple",
        "pypi.org/simple",
        "pypi.org?x",
        "pypi.org#x",
        "user@host.com",
        "a\\b.com",
        "a%2eb.com",
        "*.",
        "*.*.com",
        "a*.com",
        "*com",
        "a.*.com",
        "*.com",
        "*.COM.",
        "*.co.uk",
        "*.рф",
        "*.kawasaki.jp",
        "*.newtld",
        "*.10.0.0.1",
        "pypi.org:0",
        "pypi.org:65536",
        "pypi.org:http",
        "pypi.org:-1",
        "pypi.org:",
        "pypi.org:80:80",
        "pypi.org:+80",
        "-a.com",
        "a-.com",
        "a..b",
        ".a.com",
        "a.com..",
        ".",
        "1.2.3",
        "256.1.1.1",
        "010.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "１２７.0.0.1",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "0.0.0.0/0",
        "::/0",
        "::ffff:10.0.0.0/104",
        "fe80::1%eth0",
        "[::1",
        "[::1]x",
        "[10.0.0.1]",
        "[a.com]",
        "xn--abc.com",
        "xn--a",
        "db.internal/tcp",
        "*.internal/tcp",
        "10.0.0.1/tcp",
        "10.0.0.0/8/tcp",
        "::1/tcp",
        "fd00::/8/tcp",
        "[::1]/tcp",
        "/tcp",
        ":22/tcp",
        "*:22/tcp",
        "a.com:/tcp",
        "a.com:0/tcp",
        "a.com:22/TCP",
        "a.com:22/udp",
        "a.com:22/",
        "a.com:22/tcp/tcp",
        "a.com/tcp:22",
        "tcp://a.com:22",
    ] {
        let error = Rule::parse(text).expect_err(text);
        assert_eq!(error.entry(), text);
        let shown = error.to_string();
        assert!(shown.starts_with('`') && !shown.contains('\n'), "{shown}");
    }
    let long = format!("{}.com", "a".repeat(64));
    assert!(Rule::parse(&long).is_err());
    let long = "a.".repeat(128);
    assert!(Rule::parse(&long).is_err());
}

#[test]
fn a_refusal_says_what_to_write() {
    for (text, hint) in [
        (
            "https://u:p@pypi.org:443/simple",
            "write only the host: `pypi.org:443`",
        ),
        ("a.com,b.com", "write one entry for each host"),
        (
            "10.1.0.0/8",
            "write `10.0.0.0/8` for the network, or `10.1.0.0` alone",
        ),
        ("0x7f.1", "write `127.0.0.1`"),
        (
            "pypi.org:0",
            "a port is 1 to 65535, or `*`; `/tcp` after it allows any protocol",
        ),
        (
            "db.internal/tcp",
            "write the port, as in `db.internal:5432/tcp`",
        ),
        ("::1/tcp", "write the port, as in `[::1]:5432/tcp`"),
        ("*.com", "name the domains"),
    ] {
        assert_eq!(Rule::parse(text).expect_err(text).hint(), Some(hint));
    }
}

#[test]
fn a_rule_allows_what_it_says_and_no_more() {
    let allows = |text: &str, target: &str, port| rule(text).allows(&host(target), port);
    assert!(allows("*.github.com", "api.GitHub.com.", 443));
    assert!(allows("*.example.com", "a.b.example.com", 443));
    for other in ["example.com", "evilexample.com", "example.com.evil.io"] {
        assert!(!allows("*.example.com", other, 443), "{other}");
    }
    assert!(allows("pypi.org", "pypi.org", 80));
    assert!(!allows("pypi.org", "pypi.org", 22));
    assert!(allows("pypi.org:22", "pypi.org", 22));
    assert!(!allows("pypi.org:22", "pypi.org", 443));
    assert!(allows("pypi.org:*", "pypi.org", 1));
    assert!(allows("10.0.0.0/8", "10.255.0.1", 443));
    assert!(!allows("10.0.0.0/8", "11.0.0.1", 443));
    assert!(!allows("128.0.0.0/1", "ff00::1", 443));
    assert!(rule("pypi.org").blocks(&host("pypi.org"), 22), "all ports");
    assert!(!rule("pypi.org:22").blocks(&host("pypi.org"), 443));
    // Cyrillic letters that look like Latin ones are another name.
    assert!(!allows("apple.com", "аррlе.com", 443));
}

#[test]
fn wider_rules_cover_narrower_ones() {
    for (wide, narrow) in [
        ("*.b.c", "a.b.c:443"),
        ("*.c.d", "*.b.c.d"),
        ("10.0.0.0/8", "10.1.0.0/16"),
        ("a.b:*", "a.b"),
        ("a.b:*", "a.b:22"),
    ] {
        assert!(rule(wide).covers(&rule(narrow)), "{wide} {narrow}");
        assert!(!rule(narrow).covers(&rule(wide)), "{narrow} {wide}");
    }
}

#[test]
fn any_protocol_is_allowed_only_where_the_rule_says_so() {
    assert!(rule("a.b:22/tcp").is_raw());
    assert!(!rule("a.b:22").is_raw());
    assert!(rule("a.b:22/tcp").allows(&host("a.b"), 22));
    assert!(!rule("a.b:22/tcp").allows(&host("a.b"), 23));
    assert_ne!(rule("a.b:22/tcp"), rule("a.b:22"));
    assert!(rule("a.b:22/tcp").covers(&rule("a.b:22")));
    assert!(!rule("a.b:*").covers(&rule("a.b:22/tcp")));
    assert!(rule("a.b:*/tcp").covers(&rule("a.b:22/tcp")));
    // A block is a block, whatever is spoken.
    assert!(rule("a.b:22/tcp").blocks(&host("a.b"), 22));
    let exact = Rule::exactly_raw(&host("a.b"), 443);
    assert_eq!(exact.to_string(), "a.b:443/tcp");
    for warned in ["a.b:443/tcp", "a.b:80/tcp", "a.b:*/tcp", "10.0.0.1:443/tcp"] {
        assert!(rule(warned).warning().is_some(), "{warned}");
    }
    for fine in ["a.b:22/tcp", "a.b:443", "10.0.0.1:443"] {
        assert_eq!(rule(fine).warning(), None, "{fine}");
    }
}

#[test]
fn an_address_has_one_form() {
    for text in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0X7F.0x1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2002:7f00:1:5::9",
        "１２７．０．０．１",
        "127。0。0。1",
    ] {
        assert_eq!(host(text).to_string(), "127.0.0.1", "{text}");
    }
    assert_eq!(host("fe80::1%eth0").to_string(), "fe80::1");
    assert_eq!(host("[fe80::1%25eth0]").to_string(), "fe80::1");
    for text in [
        "127.0.0.256",
        "1.2.3.4.5",
        "0x100000000",
        "08.1.1.1",
        "1.2.3.0x",
        "4294967296",
    ] {
        let read = Host::parse(text);
        assert!(!matches!(read, Ok(Host::Name(_))), "{text} is a name");
    }
}

#[test]
fn a_host_from_outside_has_one_form_or_none() {
    for (text, canonical) in [
        ("EXAMPLE.com", "example.com"),
        ("example.com.", "example.com"),
        ("ＥＸＡＭＰＬＥ．com", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
    ] {
        assert_eq!(host(text).to_string(), canonical);
    }
    for text in [
        "",
        ".",
        "a..b",
        "a b",
        "a\tb",
        "a\r\nb",
        "a\0b",
        "a@b",
        "a#b",
        "a\\b",
        "a%2eb",
        "a/b",
        "xn--abc.com",
        "a\u{200b}b.com",
        "*.a.com",
        "[a.com]",
        "[::1",
        "::1]",
        "a:80",
        "-a.com",
        "a,b",
        "a;b",
        "\u{ff0f}a.com",
        "a\u{2100}.com",
    ] {
        assert!(
            Host::parse(text).is_err(),
            "{text:?}: {:?}",
            Host::parse(text)
        );
    }
}

#[test]
fn ports_are_read_from_the_end() {
    let read = |text: &str, default| Host::parse_with_port(text, default).ok();
    assert_eq!(read("a.com:8080", None), Some((host("a.com"), 8080)));
    assert_eq!(read("a.com", Some(80)), Some((host("a.com"), 80)));
    assert_eq!(read("[::1]:8080", None), Some((host("::1"), 8080)));
    assert_eq!(read("[::1]", Some(80)), Some((host("::1"), 80)));
    assert_eq!(read("::1", Some(80)), Some((host("::1"), 80)));
    for text in [
        "a.com",
        "a.com:",
        "a.com:0",
        "a.com:65536",
        "a.com:+1",
        "::1:80:x",
        "[::1]80",
    ] {
        assert_eq!(read(text, None), None, "{text}");
    }
}

#[test]
fn addresses_that_are_not_public_are_told() {
    for (text, class) in [
        ("8.8.8.8", Class::Public),
        ("2606:4700::1111", Class::Public),
        ("127.0.0.1", Class::Loopback),
        ("127.255.255.254", Class::Loopback),
        ("::1", Class::Loopback),
        ("::ffff:127.0.0.1", Class::Loopback),
        ("::127.0.0.1", Class::Loopback),
        ("10.1.2.3", Class::Private),
        ("172.16.0.1", Class::Private),
        ("172.31.255.255", Class::Private),
        ("172.32.0.1", Class::Public),
        ("192.168.1.1", Class::Private),
        ("fc00::1", Class::Private),
        ("fd12::1", Class::Private),
        ("64:ff9b::a01:203", Class::Private),
        ("2002:a01:203::", Class::Private),
        ("169.254.1.1", Class::LinkLocal),
        ("fe80::1", Class::LinkLocal),
        ("fec0::1", Class::LinkLocal),
        ("100.64.0.1", Class::CarrierGrade),
        ("100.127.255.255", Class::CarrierGrade),
        ("100.128.0.1", Class::Public),
        ("224.0.0.1", Class::Multicast),
        ("ff02::fb", Class::Multicast),
        ("169.254.169.254", Class::Metadata),
        ("::ffff:169.254.169.254", Class::Metadata),
        ("64:ff9b::a9fe:a9fe", Class::Metadata),
        ("2002:a9fe:a9fe::", Class::Metadata),
        ("100.100.100.200", Class::Metadata),
        ("168.63.129.16", Class::Metadata),
        ("fd00:ec2::254", Class::Metadata),
        ("0.0.0.0", Class::Unspecified),
        ("::", Class::Unspecified),
        ("0.1.2.3", Class::Reserved),
        ("255.255.255.255", Class::Reserved),
        ("192.0.2.1", Class::Reserved),
        ("198.18.0.1", Class::Reserved),
        ("2001:db8::1", Class::Reserved),
        ("2001:0:7f00:1::", Class::Reserved),
        ("64:ff9b:1::7f00:1", Class::Reserved),
        ("100::1", Class::Reserved),
    ] {
        let address: IpAddr = text.parse().expect(text);
        assert_eq!(Class::of(address), class, "{text}");
    }
}

#[test]
fn where_anyone_can_publish_there_is_a_warning() {
    for text in [
        "*.github.io",
        "github.io",
        "s3.amazonaws.com",
        "*.s3.amazonaws.com",
        "*.amazonaws.com",
        "storage.googleapis.com",
        "*.googleapis.com",
        "*.google.com",
        "raw.githubusercontent.com",
        "github.com",
        "*.vercel.app",
        "128.0.0.0/1",
    ] {
        assert!(rule(text).warning().is_some(), "{text}");
    }
    for text in [
        "example.com",
        "*.example.com",
        "api.openai.com",
        "10.0.0.0/8",
        "me.github.io",
    ] {
        assert_eq!(rule(text).warning(), None, "{text}");
    }
}

/// Pieces that mean something, so that random text reaches the inside.
fn entry() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z0-9-]{1,6}",
        3 => Just(".".to_owned()),
        1 => prop::sample::select(vec![
            "*.", "*", ":", "/", "[", "]", "::", "@", "xn--", "0x", "com", "127", "8", "ü", "。",
            "ß", "\u{200d}", " ", ",", "%", "ffff", ":443", ":*", "A", "１",
            "/tcp", ":22/tcp",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_taken_reads_back_the_same(text in entry()) {
        if let Ok(rule) = Rule::parse(&text) {
            let shown = rule.to_string();
            prop_assert!(shown.is_ascii());
            prop_assert_eq!(Rule::parse(&shown).expect("shown form is valid"), rule);
        }
        if let Ok(host) = Host::parse(&text) {
            let shown = host.to_string();
            prop_assert!(shown.is_ascii() && !shown.bytes().any(|b| b <= b' ' || b == b',' || b == b'@'));
            prop_assert_eq!(Host::parse(&shown).expect("shown form is valid"), host.clone());
            prop_assert_eq!(Host::parse_with_port(&host.with_port(7), None).expect("with a port"), (host, 7));
        }
    }

    #[test]
    fn a_rule_covers_exactly_what_it_allows(text in entry(), port in 1..=u16::MAX) {
        if let Ok(host) = Host::parse(&text) {
            let rule = Rule::exactly(&host, port);
            prop_assert!(rule.allows(&host, port));
            prop_assert!(rule.blocks(&host, port));
            prop_assert!(rule.covers(&rule));
        }
    }

    #[test]
    fn canonical_is_final(bytes in any::<[u8; 16]>(), v4 in any::<[u8; 4]>()) {
        for address in [IpAddr::from(bytes), IpAddr::from(v4)] {
            let once = canonical(address);
            prop_assert_eq!(canonical(once), once);
            prop_assert_eq!(Class::of(address), Class::of(once));
        }
    }
}
