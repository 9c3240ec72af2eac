//! CONNECT and SOCKS5: what a tunnel leads to, and what may be said in it. Each refusal stands beside
//! the same thing allowed.

use std::io::{Read, Write};

use crate::common::server::{Identity, Server, speaks_first};
use crate::common::{Lab, PUBLIC, allowing, eventually, lab, read_all, read_head, socks};

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

/// Each byte and each request is on record once, whether it is the tunnel's or the request's own.
#[test]
fn a_plain_request_in_a_tunnel_counts_once() {
    let server = Server::plain();
    let lab = lab(&server);
    let ask = "GET /1 HTTP/1.1\r\nHost: good.example\r\n\r\n";
    for requests in 1..=3 {
        lab.seen.decided.lock().expect("valid").clear();
        lab.seen.closed.lock().expect("valid").clear();
        let asked = server.requests().len();
        let (mut stream, _) = lab.tunnel("good.example:80");
        let mut received = 0;
        for _ in 0..requests {
            stream.write_all(ask.as_bytes()).expect("open");
            received += read_head(&mut stream).len();
            let mut body = [0; 9];
            stream.read_exact(&mut body).expect("a body");
            received += body.len();
        }
        drop(stream);
        let closed = || lab.seen.closed.lock().expect("valid").clone();
        eventually("all have ended", || closed().len() == requests);
        assert_eq!(lab.codes(), vec!["network.rule"; requests]);
        let sent: usize = server.requests()[asked..].iter().map(String::len).sum();
        let told: u64 = closed().iter().map(|one| one.sent).sum();
        assert_eq!(told, sent as u64, "{:#?}", closed());
        let each = sent / requests;
        assert!(closed().iter().all(|one| one.sent == each as u64));
        let told: u64 = closed().iter().map(|one| one.received).sum();
        // A proxy adds a header or two.
        assert!(told > 0 && told <= received as u64, "{told} of {received}");
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
                .contains(&format!("its TLS server name (SNI) is `{name}`")),
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
    let lab = Lab::new(allowing(&["mail.example:25/tcp"]));
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
