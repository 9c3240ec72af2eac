//! What can't be read is on record, too, with its reason; and records hold nothing that is secret.

use std::io::Write;
use std::time::Duration;

use crate::common::server::Server;
use crate::common::{Lab, PUBLIC, allowing, eventually, is_closed, lab, read_all};
use brig_egress::Limits;
use hickory_proto::op::{Edns, Message, Query};
use hickory_proto::rr::{Name, RecordType};

#[test]
fn what_cannot_be_read_has_a_record_and_a_reason() {
    let server = Server::plain();
    let lab = Lab::with_limits(
        allowing(&["good.example"]),
        Limits {
            asking: Duration::from_secs(2),
            ..Limits::default()
        },
    );
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address);
    let long = format!(
        "GET http://good.example/ HTTP/1.1\r\nX: {}\r\n",
        "x".repeat(100_000)
    );
    for (bytes, code) in [
        (
            &b"GET http://good.example/\x01 HTTP/1.1\r\n\r\n"[..],
            "network.malformed",
        ),
        (b"\0\0\0\0\r\n\r\n", "network.malformed"),
        (
            b"GET http://good.example/ HTTP/1.1\r\nbad header\r\n\r\n",
            "network.malformed",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "network.protocol"),
        (long.as_bytes(), "network.limit"),
        (b"\x05\x01\x02", "network.protocol"),
        (b"\x05\x01\x00\x04\x01\x00\x50", "network.protocol"),
        (
            b"\x05\x01\x00\x05\x02\x00\x01\x7f\0\0\x01\0\x50",
            "network.protocol",
        ),
        // Slow, and never complete.
        (
            b"GET http://good.example/ HTTP/1.1\r\nHost:",
            "network.limit",
        ),
        (b"\x05\x01\x00\x05\x01", "network.limit"),
    ] {
        let before = lab.codes().len();
        let mut stream = lab.connect();
        let _ = stream.write_all(bytes);
        assert!(is_closed(&mut stream));
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        eventually(&format!("a record of {shown:?}"), || {
            lab.codes()[before..] == [code]
        });
    }
    for (message, code) in [
        (&b"\x12\x34garbage"[..], "network.malformed"),
        (b"\x12", "network.malformed"),
        (b"\x12\x34\x80\0\0\0\0\0\0\0\0\0", "network.malformed"),
        (b"\x12\x34\x01\0\0\0\0\0\0\0\0\0", "network.protocol"),
    ] {
        let before = lab.codes().len();
        let _ = lab.gateway.answer_dns(message);
        assert_eq!(lab.codes()[before..], [code], "{message:?}");
    }
    // Control: what can be read is not refused, and a client that goes away is no denial.
    let before = lab.codes().len();
    assert!(lab.get("http://good.example/").starts_with("HTTP/1.1 200"));
    drop(lab.connect());
    lab.raw(b"GET http://good.exa");
    assert_eq!(lab.codes()[before..], ["network.rule"]);
}

#[test]
fn a_record_shows_scheme_host_and_port_and_nothing_else_of_a_url() {
    let server = Server::plain();
    let lab = lab(&server);
    let secret = "s3cr3t";
    for ask in [
        "GET http://user:s3cr3t@bad.example/s3cr3t?s3cr3t HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        "GET http://user:s3cr3t@good.example/s3cr3t?s3cr3t HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "GET https://user:s3cr3t@good.example/s3cr3t?s3cr3t HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "GET ftp://user:s3cr3t@good.example/s3cr3t HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "GET /s3cr3t?s3cr3t HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "GET http://good.example/ HTTP/1.1\r\nHost: user:s3cr3t@evil.io\r\n\r\n",
        "GET http://good.example/ HTTP/1.1\r\nHost: evil.io/s3cr3t?s3cr3t\r\n\r\n",
        "CONNECT user:s3cr3t@good.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "CONNECT user:s3cr3t@bad_host!:443 HTTP/1.1\r\nHost: good.example\r\n\r\n",
    ] {
        let before = lab.codes().len();
        let answer = lab.raw(ask.as_bytes());
        assert!(!answer.starts_with("HTTP/1.1 200"), "{ask}: {answer}");
        let decided = lab.seen.decided.lock().expect("not poisoned");
        let made = format!("{:?}", &decided[before..]);
        assert!(!made.contains(secret), "{ask}: {made}");
        assert!(!answer.contains(secret), "{ask}: {answer}");
    }
}

#[test]
fn a_mismatch_says_what_was_tried_and_at_which_address() {
    let server = Server::plain();
    let lab = lab(&server);
    let (mut stream, _) = lab.tunnel("good.example:80");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: evil.io\r\n\r\n")
        .expect("open");
    assert!(read_all(&mut stream).starts_with("HTTP/1.1 403"));
    lab.name("inside.example", &["10.0.0.9"]);
    lab.rules.change(|layers| {
        layers[0]
            .allow
            .extend(crate::common::rules(&["inside.example"]));
    });
    lab.get("http://inside.example/");
    let decided = lab.seen.decided.lock().expect("not poisoned");
    let denied: Vec<_> = decided
        .iter()
        .filter(|event| !event.decision.allowed)
        .collect();
    assert_eq!(
        denied[0].address.map(|at| at.to_string()).as_deref(),
        Some(PUBLIC)
    );
    let detail = denied[0].decision.detail().expect("what was tried");
    assert_eq!(detail, "its request is for `evil.io`");
    let refused = denied[1].decision.refused_address().expect("an address");
    assert_eq!(refused.to_string(), "10.0.0.9");
    let detail = denied[1].decision.detail().expect("what it is");
    assert_eq!(detail, "the name resolves to a private address");
}

#[test]
fn the_query_of_a_url_without_a_path_is_kept() {
    let server = Server::plain();
    let lab = lab(&server);
    for (url, line) in [
        ("http://good.example?x=1", "GET /?x=1 HTTP/1.1"),
        ("http://good.example/?x=1", "GET /?x=1 HTTP/1.1"),
        ("http://good.example/a?x=1", "GET /a?x=1 HTTP/1.1"),
        ("http://good.example", "GET / HTTP/1.1"),
    ] {
        let ask = format!("GET {url} HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n");
        assert!(lab.raw(ask.as_bytes()).starts_with("HTTP/1.1 200"), "{url}");
        let last = server.requests().pop().expect("a request");
        assert!(last.starts_with(line), "{url}: {last}");
    }
}

fn query(name: &str, kind: RecordType, announced: Option<u16>) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).expect(name), kind));
    if let Some(size) = announced {
        let mut edns = Edns::new();
        edns.set_max_payload(size);
        message.set_edns(edns);
    }
    message.to_vec().expect("a query")
}

#[test]
fn one_lookup_makes_one_record() {
    let lab = Lab::new(allowing(&["good.example"]));
    for name in ["bad.example.", "good.example."] {
        let before = lab.codes().len();
        for kind in [RecordType::A, RecordType::AAAA] {
            lab.gateway
                .answer_dns(&query(name, kind, None))
                .expect("an answer");
        }
        assert_eq!(lab.codes().len() - before, 1, "{name}");
        lab.gateway
            .answer_dns(&query(name, RecordType::A, None))
            .expect("an answer");
        assert_eq!(lab.codes().len() - before, 2, "once more is another lookup");
    }
}

#[test]
fn an_answer_is_as_long_as_the_client_can_take() {
    let lab = Lab::new(allowing(&["good.example"]));
    let label = "x".repeat(60);
    let long = format!("{label}.{label}.{label}.bad.example.");
    let mut lengths = Vec::new();
    for announced in [None, Some(512), Some(700), Some(4096)] {
        let asked = query(&long, RecordType::TXT, announced);
        let answer = lab.gateway.answer_dns(&asked).expect("an answer");
        let most = usize::from(announced.unwrap_or(512));
        assert!(answer.len() <= most, "{announced:?}: {}", answer.len());
        let read = Message::from_vec(&answer).expect("it can be read");
        assert!(!read.metadata.truncation, "the answer itself fits");
        lengths.push(answer.len());
    }
    assert!(
        lengths[3] > 700,
        "control: the explanation is long: {lengths:?}"
    );
}
