//! The proxy: what is allowed passes, what is not is told apart, and every trick to make one look
//! like the other fails. Each refusal stands beside the same thing allowed.

mod common;

use std::io::{Read, Write};

use brig_egress::{Layer, LayerKind, RuleSet};
use common::server::{Identity, Server, speaks_first};
use common::{Lab, OTHER, PUBLIC, allowing, is_closed, read_all, read_head, rules};

/// `good.example` on ports 80, 443 and 8080 leads to the server.
fn lab(server: &Server) -> Lab {
    let lab = Lab::new(allowing(&["good.example", "good.example:8080"]));
    lab.name("good.example", &[PUBLIC]);
    for port in [80, 443, 8080] {
        lab.route(PUBLIC, port, server.address);
    }
    lab
}

#[test]
fn a_request_is_passed_on_or_refused_with_a_reason() {
    let server = Server::plain();
    let lab = lab(&server);
    let good = lab.get("http://good.example/a?b");
    assert!(
        good.starts_with("HTTP/1.1 200") && good.contains("hello /a?b"),
        "{good}"
    );
    assert!(
        !good.contains("forged"),
        "only the gateway gives reasons: {good}"
    );
    let bad = lab.get("http://bad.example/");
    assert!(bad.starts_with("HTTP/1.1 403"), "{bad}");
    assert!(bad.contains("x-brig-reason: network.no-rule\r\n"), "{bad}");
    assert!(
        bad.ends_with(
            "`bad.example:80` is denied: no rule allows it; \
             `brig sandbox allow bad.example` would allow it\n"
        ),
        "{bad}"
    );
    assert_eq!(
        lab.looked_up(),
        ["good.example"],
        "no lookup before the decision"
    );
    assert_eq!(lab.dialled(), [format!("{PUBLIC}:80")]);
    assert_eq!(lab.codes(), ["network.rule", "network.no-rule"]);
}

#[test]
fn every_decision_is_on_record_with_bytes_and_execution() {
    let server = Server::plain();
    let lab = lab(&server);
    lab.gateway.set_execution(Some("exec-7"));
    lab.get("http://good.example/bytes/100000");
    common::eventually("the end is told", || {
        !lab.seen.closed.lock().expect("not poisoned").is_empty()
    });
    let closed = lab.seen.closed.lock().expect("not poisoned")[0].clone();
    let decided = lab.seen.decided.lock().expect("not poisoned")[0].clone();
    assert_eq!(closed.id, decided.id);
    assert_eq!(decided.execution.as_deref(), Some("exec-7"));
    assert_eq!(decided.address, PUBLIC.parse().ok());
    assert_eq!(decided.decision.layer, Some(LayerKind::Run));
    assert_eq!(
        decided
            .decision
            .rule
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some("good.example")
    );
    assert!(
        closed.received > 100_000 && closed.sent > 20 && closed.sent < 1000,
        "{closed:?}"
    );
    assert!(closed.end.is_none(), "{closed:?}");
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let server = Server::plain();
    let lab = lab(&server);
    assert!(lab.get("http://good.example/").starts_with("HTTP/1.1 200"));
    *lab.seen.full.lock().expect("not poisoned") = true;
    let refused = lab.get("http://good.example/");
    assert!(
        refused.contains("x-brig-reason: network.unrecorded"),
        "{refused}"
    );
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_tunnel_leads_only_to_what_was_asked_for() {
    let identity = Identity::new(&["good.example"]);
    let server = Server::tls(&identity);
    let lab = lab(&server);
    let (_, head) = lab.tunnel("good.example:443");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for (target, code) in [
        ("bad.example:443", "network.no-rule"),
        ("good.example:22", "network.port"),
        ("sub.good.example:443", "network.no-rule"),
        ("evilgood.example:443", "network.no-rule"),
        ("good.example.evil.io:443", "network.no-rule"),
    ] {
        let (_, head) = lab.tunnel(target);
        assert!(head.starts_with("HTTP/1.1 403"), "{target}: {head}");
        assert!(
            head.contains(&format!("x-brig-reason: {code}\r\n")),
            "{target}: {head}"
        );
    }
    assert_eq!(lab.looked_up(), ["good.example"]);
}

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

/// CONNECT over SOCKS5 with the host as a name; the answer.
fn socks(lab: &Lab, target: &str) -> Vec<u8> {
    let (host, port) = target.rsplit_once(':').expect("a port");
    let host = host.trim_matches(['[', ']']);
    let mut stream = lab.connect();
    let mut ask = vec![5, 1, 0, 5, 1, 0, 3, host.len() as u8];
    ask.extend_from_slice(host.as_bytes());
    ask.extend_from_slice(&port.parse::<u16>().expect("a port").to_be_bytes());
    stream.write_all(&ask).expect("it listens");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..2], [5, 0], "no authentication");
    answer[2..].to_vec()
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

#[test]
fn a_host_has_one_form_or_is_refused() {
    let server = Server::plain();
    let lab = lab(&server);
    for host in ["GOOD.example", "good.example.", "Good.Example.:80"] {
        let good = lab.get(&format!("http://{host}/"));
        assert!(good.starts_with("HTTP/1.1 200"), "{host}: {good}");
    }
    assert!(lab.looked_up().iter().all(|name| name == "good.example"));
    assert!(
        server
            .requests()
            .iter()
            .all(|head| head.contains("host: good.example\r\n"))
    );
    let asked = server.requests().len();
    for host in [
        "good.example\0",
        "good.example\t",
        "user@good.example",
        "good.example@evil.io",
        "good%2eexample",
        "good.example%00.evil.io",
        "good.example\\.evil.io",
        "good..example",
        "xn--abc.example",
        "good.example:0",
        "good.example:65536",
        "good.example:80:80",
        "*",
        "good.example,evil.io",
        "gооd.example",
        "good。example",
        ".good.example",
        "[good.example]",
    ] {
        let ask =
            format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let refused = lab.raw(ask.as_bytes());
        assert!(
            refused.starts_with("HTTP/1.1 400") || refused.starts_with("HTTP/1.1 403"),
            "{host:?}: {refused}"
        );
    }
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn a_request_cannot_be_hidden_in_another() {
    let server = Server::plain();
    let lab = lab(&server);
    let url = "http://good.example";
    // Two lengths, chunks and a length, a line that is continued, bare line feeds, CR in a header.
    let hidden = "GET http://good.example/hidden HTTP/1.1\r\nHost: good.example\r\n\r\n";
    for head in [
        "Content-Length: 0\r\nContent-Length: 70\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: +70\r\n",
        "X: a\rHost: evil.io\r\n",
        "X: a\r\n Host: evil.io\r\n",
        "Host: evil.io\r\n",
    ] {
        let ask = format!("POST {url}/seen HTTP/1.1\r\nHost: good.example\r\n{head}\r\n{hidden}");
        let answer = lab.raw(ask.as_bytes());
        assert!(
            !answer.contains("hello /hidden") || answer.matches("HTTP/1.1").count() > 1,
            "{head}: {answer}"
        );
        assert!(answer.starts_with("HTTP/1.1 4"), "{head:?}: {answer}");
    }
    assert_eq!(server.requests().len(), 0, "{:?}", server.requests());
    // Chunks and a length: read as chunks, and passed on with one framing only.
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let ask = format!("POST {url}/both HTTP/1.1\r\nHost: good.example\r\n{both}");
    let answer = lab.raw(ask.as_bytes());
    for head in server.requests() {
        let lower = head.to_ascii_lowercase();
        assert!(
            !(lower.contains("content-length") && lower.contains("transfer-encoding")),
            "{head}"
        );
    }
    assert!(server.requests().len() <= 1, "{answer}");
    // And an honest body arrives.
    let honest = format!(
        "POST {url}/honest HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    );
    assert!(lab.raw(honest.as_bytes()).contains("hello /honest"));
}

#[test]
fn url_and_host_must_say_the_same() {
    let server = Server::plain();
    let lab = lab(&server);
    let ask = |url: &str, host: &str| {
        lab.raw(
            format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    };
    assert!(ask("http://good.example/", "GOOD.example:80").starts_with("HTTP/1.1 200"));
    for host in [
        "evil.io",
        "good.example:8080",
        "good.example.evil.io",
        "127.0.0.1",
        "good.example, evil.io",
    ] {
        let refused = ask("http://good.example/", host);
        assert!(
            refused.contains("x-brig-reason: network.mismatch"),
            "{host}: {refused}"
        );
    }
    assert!(ask("/", "good.example").contains("x-brig-reason: network.protocol"));
    assert!(
        ask("https://good.example/", "good.example").contains("x-brig-reason: network.protocol")
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_second_request_of_a_connection_is_decided_again() {
    let server = Server::plain();
    let lab = lab(&server);
    let mut stream = lab.connect();
    let mut ask = |url: &str, host: &str| {
        stream
            .write_all(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
            .expect("open");
        let head = read_head(&mut stream);
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1).expect("a length");
        let mut body = vec![
            0;
            length
                .lines()
                .next()
                .expect("sound")
                .parse()
                .expect("a length")
        ];
        stream.read_exact(&mut body).expect("a body");
        head
    };
    assert!(ask("http://good.example/1", "good.example").starts_with("HTTP/1.1 200"));
    assert!(ask("http://good.example/2", "good.example").starts_with("HTTP/1.1 200"));
    assert_eq!(server.accepted(), 1, "the connection is used again");
    let refused = ask("http://evil.io/", "evil.io");
    assert!(
        refused.contains("x-brig-reason: network.no-rule"),
        "{refused}"
    );
    assert!(is_closed(&mut stream));
    assert_eq!(
        lab.codes(),
        ["network.rule", "network.rule", "network.no-rule"]
    );
}

#[test]
fn plain_requests_in_a_tunnel_are_looked_at() {
    let server = Server::plain();
    for port in [80, 8080] {
        let lab = lab(&server);
        let target = format!("good.example:{port}");
        let before = server.requests().len();
        let (mut stream, _) = lab.tunnel(&target);
        stream
            .write_all(format!("GET /1 HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
            .expect("open");
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
        let mut body = [0; 9];
        stream.read_exact(&mut body).expect("a body");
        // The same connection, another host: in capitals, in pieces, after blank lines.
        stream
            .write_all(b"\r\nFROB / HTTP/1.1\r\nhOsT:")
            .expect("open");
        stream.write_all(b" evil.io\r\n\r\n").expect("open");
        let refused = read_all(&mut stream);
        assert!(
            refused.contains("x-brig-reason: network.mismatch"),
            "{refused}"
        );
        for first in [
            &b"GET / HTTP/1.1\r\nHost: evil.io\r\n\r\n"[..],
            b"\r\n\r\nGET / HTTP/1.1\r\nHost: evil.io\r\n\r\n",
            b"GET http://evil.io/ HTTP/1.1\r\nHost: evil.io\r\n\r\n",
            b"FROB / HTTP/1.1\r\nHost: evil.io\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: good.example\r\nHost: evil.io\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let (mut stream, _) = lab.tunnel(&target);
            stream.write_all(first).expect("open");
            let refused = read_all(&mut stream);
            assert!(
                !refused.contains("HTTP/1.1 200"),
                "{:?}: {refused}",
                String::from_utf8_lossy(first)
            );
        }
        assert_eq!(
            server.requests().len() - before,
            1,
            "{:?}",
            server.requests()
        );
    }
}

#[test]
fn the_tls_name_must_be_the_one_that_was_asked_for() {
    let identity = Identity::new(&["good.example"]);
    let server = Server::tls(&identity);
    let lab = lab(&server);
    let hello = |name: &str| client_hello(name);
    for name in ["good.example", "GOOD.example"] {
        let (mut stream, _) = lab.tunnel("good.example:443");
        stream.write_all(&hello(name)).expect("open");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        assert_eq!(byte, [0x16], "a handshake, for {name}");
    }
    for name in ["evil.io", "sub.good.example", "good.example.evil.io"] {
        let (mut stream, _) = lab.tunnel("good.example:443");
        for piece in hello(name).chunks(50) {
            stream.write_all(piece).expect("open");
        }
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).expect("an alert");
        assert_eq!(
            alert,
            [0x15, 3, 3, 0, 2, 2, 49],
            "access denied, for {name}"
        );
        assert!(
            lab.last_denial()
                .contains(&format!("its TLS name is `{name}`")),
            "{}",
            lab.last_denial()
        );
    }
    // Cut off, and no hello at all.
    for first in [&hello("good.example")[..40], b"\x16\x03\x01\x00\x05hello"] {
        let (mut stream, _) = lab.tunnel("good.example:443");
        stream.write_all(first).expect("open");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(&[0x16]), "{answer:?}");
    }
}

fn client_hello(name: &str) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(config.into(), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a hello");
    bytes
}

#[test]
fn a_server_may_speak_first() {
    let lab = Lab::new(allowing(&["mail.example:25"]));
    lab.name("mail.example", &[PUBLIC])
        .route(PUBLIC, 25, speaks_first());
    let (mut stream, head) = lab.tunnel("mail.example:25");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut banner = [0; 11];
    stream.read_exact(&mut banner).expect("a banner");
    assert_eq!(&banner, b"220 ready\r\n");
    stream.write_all(b"EHLO me\r\n").expect("open");
    let mut echo = [0; 9];
    stream.read_exact(&mut echo).expect("an echo");
    assert_eq!(&echo, b"EHLO me\r\n");
}

#[test]
fn a_redirect_to_another_host_is_another_request() {
    let server = Server::plain();
    let lab = lab(&server);
    let redirected = lab.get("http://good.example/redirect/evil.io/");
    assert!(
        redirected.contains("Location: http://evil.io/")
            || redirected.contains("location: http://evil.io/"),
        "{redirected}"
    );
    assert!(lab.get("http://evil.io/").contains("network.no-rule"));
}

#[test]
fn a_websocket_passes_and_other_upgrades_do_not() {
    let server = Server::plain();
    let lab = lab(&server);
    let mut stream = lab.connect();
    let ask = "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("open");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101"));
    stream.write_all(b"ping").expect("open");
    let mut pong = [0; 4];
    stream.read_exact(&mut pong).expect("an echo");
    assert_eq!(&pong, b"ping");
    let ask = "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n";
    let answer = lab.raw(ask.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let last = server
        .requests()
        .last()
        .expect("a request")
        .to_ascii_lowercase();
    assert!(
        !last.contains("upgrade") && !last.contains("http2-settings"),
        "{last}"
    );
}

#[test]
fn what_concerns_only_the_proxy_goes_no_further() {
    let server = Server::plain();
    let lab = lab(&server);
    lab.raw(b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nX-Own: 1\r\nConnection: close, X-Own\r\n\r\n");
    let head = server
        .requests()
        .pop()
        .expect("a request")
        .to_ascii_lowercase();
    assert!(
        !head.contains("proxy-") && !head.contains("x-own"),
        "{head}"
    );
}

#[test]
fn socks_offers_connect_and_nothing_else() {
    let server = Server::plain();
    let lab = lab(&server);
    assert_eq!(socks(&lab, "good.example:8080")[1], 0);
    assert_eq!(socks(&lab, "GOOD.example.:80")[1], 0);
    assert_eq!(socks(&lab, "bad.example:80")[1], 2);
    assert_eq!(socks(&lab, "good.example:22")[1], 2);
    assert_eq!(socks(&lab, "good.example\r\n:80")[1], 2);
    assert_eq!(socks(&lab, "good.example:0")[1], 2);
    assert_eq!(lab.looked_up(), ["good.example", "good.example"]);
    for (request, code) in [
        (&b"\x05\x02\x00\x01\x7f\0\0\x01\0\x50"[..], 7),
        (b"\x05\x03\x00\x01\x7f\0\0\x01\0\x50", 7),
        (b"\x05\x01\x00\x01\x7f\0\0\x01\0\x50", 2),
        (
            b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01\0\x50",
            2,
        ),
        (b"\x05\x01\x00\x09\x7f\0\0\x01\0\x50", 8),
    ] {
        let mut stream = lab.connect();
        stream.write_all(b"\x05\x01\x00").expect("open");
        stream.write_all(request).expect("open");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[3], code, "{request:?}");
    }
    // Only with a password, and version 4.
    let mut stream = lab.connect();
    stream.write_all(b"\x05\x01\x02").expect("open");
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, [5, 0xff]);
    assert!(
        lab.raw(b"\x04\x01\x00\x50\x7f\0\0\x01\0")
            .starts_with("HTTP/1.1 400")
    );
}

#[test]
fn a_denial_reads_the_same_everywhere() {
    let lab = Lab::new(allowing(&["good.example"]));
    let text = "`bad.example:443` is denied: no rule allows it; `brig sandbox allow bad.example` would allow it";
    let (mut stream, _) = lab.tunnel("bad.example:443");
    assert_eq!(read_all(&mut stream), format!("{text}\n"));
    assert_eq!(lab.last_denial(), text);
    socks(&lab, "bad.example:443");
    assert_eq!(lab.last_denial(), text);
    assert!(lab.get("http://bad.example:443/").contains(text));
}
