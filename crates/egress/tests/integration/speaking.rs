//! What may be said on a connection to an allowed host: TLS that names it in every hello, HTTP that
//! asks for it in every request, and anything where a rule says `/tcp`. Each refusal stands beside
//! the same thing allowed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::common::server::{Identity, Server, hears, speaks_first};
use crate::common::{Lab, PUBLIC, allowing, eventually, is_closed, lab, read_all, rules};
use brig_egress::{Layer, LayerKind, RuleSet};
use rustls::{ClientConfig, ClientConnection};

const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];

fn client(name: &str) -> ClientConnection {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().expect("a name");
    ClientConnection::new(config.into(), name).expect("a client")
}

fn said(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("memory");
    }
    bytes
}

fn record(stream: &mut TcpStream) -> Vec<u8> {
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).expect("a record");
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    record.resize(5 + length, 0);
    stream.read_exact(&mut record[5..]).expect("a record");
    record
}

/// A HelloRetryRequest is a ServerHello with this beginning of its random value.
fn is_retry(record: &[u8]) -> bool {
    record.starts_with(&[0x16]) && record[11..15] == [0xcf, 0x21, 0xad, 0x74]
}

#[test]
fn the_second_hello_must_name_the_same_host() {
    let identity = Identity::that_retries(&["good.example"]);
    let server = Server::tls(&identity);
    let lab = lab(&server);
    for (name, passes) in [("good.example", true), ("evil.example", false)] {
        for before in [&b""[..], b"\x14\x03\x03\x00\x01\x01"] {
            let (mut stream, _) = lab.tunnel("good.example:443");
            let mut client = client("good.example");
            stream.write_all(&said(&mut client)).expect("open");
            let retry = record(&mut stream);
            assert!(is_retry(&retry), "control: {retry:?}");
            client.read_tls(&mut &retry[..]).expect("memory");
            client.process_new_packets().expect("another hello");
            let mut second = said(&mut client);
            let mut parts = second.windows(name.len());
            let at = parts
                .position(|part| part == b"good.example")
                .expect("a name");
            second[at..at + name.len()].copy_from_slice(name.as_bytes());
            stream.write_all(before).expect("open");
            for piece in second.chunks(100) {
                let _ = stream.write_all(piece);
            }
            // A CCS may follow the retry.
            let mut answer = record(&mut stream);
            while answer[0] == 0x14 {
                answer = record(&mut stream);
            }
            if passes {
                // It is the server who answers, also to a name that it does not know.
                assert_ne!(answer, ALERT, "{before:?}");
            } else {
                assert_eq!(answer, ALERT);
                let denial = lab.last_denial();
                assert!(
                    denial.contains("its TLS server name (SNI) is `evil.example`"),
                    "{denial}"
                );
            }
        }
    }
}

#[test]
fn a_whole_handshake_passes_also_with_a_second_hello() {
    for identity in [
        Identity::new(&["good.example"]),
        Identity::that_retries(&["good.example"]),
    ] {
        let server = Server::tls(&identity);
        let lab = lab(&server);
        let (mut stream, _) = lab.tunnel("good.example:443");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let pem = pem_to_der(&identity.pem);
        roots.add(pem.into()).expect("a certificate");
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "good.example".try_into().expect("a name");
        let mut session = ClientConnection::new(config.into(), name).expect("a client");
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        tls.write_all(b"GET /tls HTTP/1.1\r\nHost: good.example\r\n\r\n")
            .expect("a session");
        let mut answer = [0; 15];
        tls.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        assert_eq!(lab.codes(), ["network.rule"]);
    }
}

fn pem_to_der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    der.to_vec()
}

#[test]
fn nothing_may_come_before_a_hello_or_behind_it() {
    let identity = Identity::new(&["good.example"]);
    let server = Server::tls(&identity);
    let lab = lab(&server);
    let good = said(&mut client("good.example"));
    let evil = said(&mut client("evil.io"));
    let pieces = |hello: &[u8]| -> Vec<u8> {
        let pieces = hello[5..].chunks(30).map(|piece| {
            let header = [0x16, 3, 1, 0, piece.len() as u8];
            [&header[..], piece].concat()
        });
        pieces.collect::<Vec<_>>().concat()
    };
    for (what, bytes, passes) in [
        ("alone", good.clone(), true),
        ("in many records", pieces(&good), true),
        (
            "a warning first",
            [&[0x15, 3, 1, 0, 2, 1, 0], &evil[..]].concat(),
            false,
        ),
        (
            "a warning, the same name",
            [&[0x15, 3, 1, 0, 2, 1, 0], &good[..]].concat(),
            false,
        ),
        (
            "a CCS first",
            [&[0x14, 3, 1, 0, 1, 1], &evil[..]].concat(),
            false,
        ),
        (
            "data first",
            [&[0x17, 3, 1, 0, 1, 1], &evil[..]].concat(),
            false,
        ),
        (
            "an empty record first",
            [&[0x16, 3, 1, 0, 0], &evil[..]].concat(),
            false,
        ),
        ("another in many records", pieces(&evil), false),
        ("two at once", [&good[..], &evil].concat(), false),
    ] {
        let (mut stream, _) = lab.tunnel("good.example:443");
        let _ = stream.write_all(&bytes);
        let mut first = [0];
        let read = stream.read(&mut first).unwrap_or(0);
        assert_eq!(read == 1 && first == [0x16], passes, "{what}: {first:?}");
    }
}

#[test]
fn what_is_neither_tls_nor_http_needs_a_rule_that_says_tcp() {
    const H2C: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let inputs: [&[u8]; 11] = [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"EHLO me\r\n",
        b"GET /\x01 HTTP/1.1\r\nHost: evil.io\r\n\r\n",
        b"GET /\x7f HTTP/1.1\r\nHost: evil.io\r\n\r\n",
        b"GET /old\r\n",
        b"\r\n\x16\x03\x01\x00\x05hello",
        // A hello as SSL 2 had it.
        b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10",
        b"\xffSMB",
        b"\0",
        H2C,
    ];
    let (address, heard) = hears(b"");
    for target in ["good.example:8080", "good.example:443"] {
        let lab = Lab::new(allowing(&["good.example", "good.example:8080"]));
        lab.name("good.example", &[PUBLIC])
            .route(PUBLIC, 8080, address)
            .route(PUBLIC, 443, address);
        for input in inputs {
            let (mut stream, head) = lab.tunnel(target);
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let _ = stream.write_all(input);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            assert!(is_closed(&mut stream));
            let wanted = if input == H2C {
                "network.protocol"
            } else {
                "network.raw"
            };
            eventually("it is on record", || lab.codes().last() == Some(&wanted));
        }
        let denial = lab.last_denial();
        assert!(denial.contains("HTTP/2 without TLS"), "{denial}");
    }
    assert_eq!(*heard.lock().expect("not poisoned"), b"", "nothing passed");
    // With the rule, all of it does, and the record says so.
    let lab = Lab::new(allowing(&["good.example", "good.example:8080/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 8080, address);
    for input in inputs {
        heard.lock().expect("not poisoned").clear();
        let (mut stream, _) = lab.tunnel("good.example:8080");
        stream.write_all(input).expect("open");
        eventually("it passes", || {
            *heard.lock().expect("not poisoned") == input
        });
    }
    let decided = lab.seen.decided.lock().expect("not poisoned");
    for event in decided.iter() {
        assert!(event.decision.raw && event.decision.allowed);
        let rule = event.decision.rule.as_ref().expect("a rule");
        assert_eq!(rule.to_string(), "good.example:8080/tcp");
    }
}

#[test]
fn a_server_that_speaks_first_needs_a_rule_that_says_tcp() {
    let (address, heard) = hears(b"220 ready\r\n");
    let lab = Lab::new(allowing(&["good.example:8080"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 8080, address);
    let (mut stream, head) = lab.tunnel("good.example:8080");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // As the attack does: wait for the server, then speak as one pleases.
    assert_eq!(read_all(&mut stream), "", "no banner");
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(lab.codes(), ["network.rule", "network.raw"]);
    let denial = lab.last_denial();
    assert!(denial.contains("the server sends first"), "{denial}");
    assert!(
        denial.contains("`brig sandbox allow good.example:8080/tcp` would allow it"),
        "{denial}"
    );
    // A hello of TLS does not open it either: no answer but one in TLS passes.
    let (mut stream, _) = lab.tunnel("good.example:8080");
    let _ = stream.write_all(&said(&mut client("good.example")));
    let said = read_all(&mut stream);
    assert!(!said.contains("220"), "{said}");
    assert_eq!(lab.codes().last(), Some(&"network.raw"));
    std::thread::sleep(Duration::from_millis(50));
    let heard = heard.lock().expect("not poisoned").clone();
    assert!(!heard.windows(3).any(|part| part == b"PRI"), "{heard:?}");
    // Control: the rule.
    let lab = Lab::new(allowing(&["good.example:8080/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 8080, address);
    let (mut stream, _) = lab.tunnel("good.example:8080");
    let mut banner = [0; 11];
    stream.read_exact(&mut banner).expect("a banner");
    assert_eq!(&banner, b"220 ready\r\n");
}

#[test]
fn a_rule_for_any_protocol_can_be_taken_back_alone() {
    let lab = Lab::new(allowing(&["good.example:8080", "good.example:8080/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 8080, speaks_first());
    let (mut stream, _) = lab.tunnel("good.example:8080");
    let mut banner = [0; 11];
    stream.read_exact(&mut banner).expect("a banner");
    lab.rules.change(|layers| layers[0].allow.truncate(1));
    assert!(is_closed(&mut stream));
}

#[test]
fn an_open_network_carries_anything_but_on_the_ports_of_the_web() {
    let layer = Layer::new(LayerKind::Policy).deny(rules(&["evil.io"]));
    let lab = Lab::new(RuleSet::open(vec![layer]));
    lab.name("git.example", &[PUBLIC]);
    for port in [22, 443] {
        lab.route(PUBLIC, port, speaks_first());
    }
    let (mut stream, _) = lab.tunnel("git.example:22");
    let mut banner = [0; 11];
    stream.read_exact(&mut banner).expect("a banner");
    {
        let decided = lab.seen.decided.lock().expect("not poisoned");
        let raw: Vec<bool> = decided.iter().map(|event| event.decision.raw).collect();
        assert_eq!(raw, [false, true], "that it is raw is on record");
    }
    let (mut stream, _) = lab.tunnel("git.example:443");
    assert_eq!(read_all(&mut stream), "");
    assert_eq!(lab.codes().last(), Some(&"network.raw"));
    // What is TLS after all must name the host.
    lab.route(PUBLIC, 22, hears(b"").0);
    let (mut stream, _) = lab.tunnel("git.example:22");
    let _ = stream.write_all(&said(&mut client("evil.io")));
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).expect("an alert");
    assert_eq!(alert, ALERT);
}

#[test]
fn a_hello_that_may_hide_a_name_is_on_record() {
    let identity = Identity::new(&["good.example"]);
    let server = Server::tls(&identity);
    let lab = lab(&server);
    let hello = said(&mut client("good.example"));
    // As browsers do with every hello, meant or not: an extension that only some can read.
    let hello = with_extension(&hello, &[0xfe, 0x0d, 0, 4, 0, 1, 2, 3]);
    let (mut stream, _) = lab.tunnel("good.example:443");
    stream.write_all(&hello).expect("open");
    let mut first = [0];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(lab.codes(), ["network.rule", "network.hidden-name"]);
}

/// The hello in one record, with one more extension in front of the others.
fn with_extension(hello: &[u8], extension: &[u8]) -> Vec<u8> {
    let longer = |bytes: &mut [u8]| {
        let length = u16::from_be_bytes([bytes[0], bytes[1]]) + extension.len() as u16;
        bytes.copy_from_slice(&length.to_be_bytes());
    };
    let mut hello = hello.to_vec();
    let session = 5 + 4 + 2 + 32;
    let suites = session + 1 + usize::from(hello[session]);
    let length = usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
    let compression = suites + 2 + length;
    let extensions = compression + 1 + usize::from(hello[compression]);
    longer(&mut hello[3..5]);
    longer(&mut hello[7..9]);
    longer(&mut hello[extensions..extensions + 2]);
    hello.splice(extensions + 2..extensions + 2, extension.iter().copied());
    hello
}
