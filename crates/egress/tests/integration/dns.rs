//! The resolver inside, and connections to the addresses it gives.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::common::server::Server;
use crate::common::{Lab, PUBLIC, allowing, connect};
use brig_egress::{Gateway, ListenerKind, Protocol};
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

fn query(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).expect(name), kind));
    message.set_edns(Edns::new());
    message.to_vec().expect("a query")
}

fn ask(lab: &Lab, query: &[u8]) -> Option<Message> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("valid");
    socket.send_to(query, lab.dns).expect("sent");
    // Something that is always answered, to know when no answer will come.
    let mut known = Message::query();
    known.metadata.id = 0xbeef;
    socket
        .send_to(&known.to_vec().expect("a query"), lab.dns)
        .expect("sent");
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).expect("an answer");
    let answer = Message::from_vec(&buffer[..length]).expect("it can be read");
    (answer.metadata.id != 0xbeef).then_some(answer)
}

fn address(answer: &Message) -> Option<Ipv4Addr> {
    answer.answers.iter().find_map(|record| match record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    })
}

#[test]
fn allowed_names_have_an_address_and_others_do_not_exist() {
    let lab = Lab::new(allowing(&["good.example", "*.wild.example:22"]));
    for name in ["good.example.", "GOOD.example.", "a.b.wild.example."] {
        let answer = ask(&lab, &query(name, RecordType::A)).expect("an answer");
        let address = address(&answer).expect(name);
        assert_eq!(address.octets()[..2], [198, 18], "{name}");
    }
    let again = ask(&lab, &query("good.example.", RecordType::A)).expect("an answer");
    assert_eq!(
        address(&again),
        Some(Ipv4Addr::new(198, 18, 0, 1)),
        "always the same"
    );
    for name in [
        "bad.example.",
        "wild.example.",
        "secret.data.bad.example.",
        "com.",
        "1.0.0.127.in-addr.arpa.",
        "127.0.0.1.",
    ] {
        let answer = ask(&lab, &query(name, RecordType::A)).expect("an answer");
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NXDomain,
            "{name}"
        );
        assert!(answer.answers.is_empty());
    }
    let denied = ask(&lab, &query("bad.example.", RecordType::A)).expect("an answer");
    let said = denied.to_vec().expect("bytes");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(
        said.contains("network.no-rule: `bad.example` is denied: no rule allows it; `brig sandbox allow bad.example` would allow it"),
        "{said}"
    );
    assert!(lab.looked_up().is_empty(), "nothing is ever passed on");
    assert!(lab.codes().contains(&"network.no-rule") && lab.codes().contains(&"network.rule"));
}

#[test]
fn other_questions_are_answered_with_nothing() {
    let lab = Lab::new(allowing(&["good.example"]));
    for kind in [
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::HTTPS,
        RecordType::MX,
        RecordType::ANY,
    ] {
        let answer = ask(&lab, &query("good.example.", kind)).expect("an answer");
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NoError,
            "{kind}"
        );
        assert!(answer.answers.is_empty(), "{kind}");
    }
    let mut odd = Message::query();
    let mut question = Query::query(
        Name::from_ascii("good.example.").expect("valid"),
        RecordType::A,
    );
    question.set_query_class(DNSClass::CH);
    odd.add_query(question);
    let answer = ask(&lab, &odd.to_vec().expect("valid")).expect("an answer");
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    let mut two = Message::query();
    for name in ["good.example.", "bad.example."] {
        two.add_query(Query::query(
            Name::from_ascii(name).expect("valid"),
            RecordType::A,
        ));
    }
    let answer = ask(&lab, &two.to_vec().expect("valid")).expect("an answer");
    assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    let mut update = Message::query();
    update.metadata.op_code = OpCode::Update;
    let answer = ask(&lab, &update.to_vec().expect("valid")).expect("an answer");
    assert_eq!(answer.metadata.response_code, ResponseCode::NotImp);
}

/// A name may be what is to be carried out, whatever message it is in.
#[test]
fn names_in_messages_that_are_refused_are_on_record() {
    let lab = Lab::new(allowing(&["good.example"]));
    let question = |name: &str| {
        let name = Name::from_ascii(name).expect("valid");
        Query::query(name, RecordType::A)
    };
    let mut odd = Message::query();
    let mut other_class = question("secret-one.example.");
    other_class.set_query_class(DNSClass::CH);
    odd.add_query(other_class);
    let mut two = Message::query();
    two.add_query(question("secret-two.example."));
    two.add_query(question("secret-three.example."));
    let mut update = Message::query();
    update.metadata.op_code = OpCode::Update;
    update.add_query(question("secret-four.example."));
    let mut many = Message::query();
    for n in 0..30 {
        many.add_query(question(&format!("many{n}.example.")));
    }
    for message in [odd, two, update, many] {
        ask(&lab, &message.to_vec().expect("valid")).expect("an answer");
    }
    ask(&lab, &query("plain.example.", RecordType::A)).expect("the control");
    let seen = lab.denied_hosts();
    for name in [
        "secret-one",
        "secret-two",
        "secret-three",
        "secret-four",
        "plain",
    ] {
        let name = format!("{name}.example");
        assert!(seen.contains(&name), "{name}: {seen:?}");
    }
    let of_many = seen.iter().filter(|host| host.starts_with("many"));
    assert_eq!(of_many.count(), 16, "and no more: {seen:?}");
}

#[test]
fn packets_that_make_no_sense_do_no_harm() {
    let lab = Lab::new(allowing(&["good.example"]));
    let sound = query("good.example.", RecordType::A);
    let mut answer = Message::from_vec(&sound).expect("valid");
    answer.metadata.message_type = hickory_proto::op::MessageType::Response;
    assert!(
        ask(&lab, &answer.to_vec().expect("valid")).is_none(),
        "an answer is not answered"
    );
    for cut in 0..sound.len() - 1 {
        if let Some(answer) = ask(&lab, &sound[..cut]) {
            assert_ne!(
                answer.metadata.response_code,
                ResponseCode::NoError,
                "{cut}"
            );
        }
    }
    // A name that points to itself, one that points ahead, and a count of records that are not there.
    let head = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    for body in [
        &b"\xc0\x0c\x00\x01\x00\x01"[..],
        b"\xc0\x40\x00\x01\x00\x01",
        b"\x3f",
        b"\x01a\xc0\x0c\x00\x01\x00\x01",
    ] {
        let packet = [&head[..], body].concat();
        let answer = ask(&lab, &packet).expect("an answer");
        assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    }
    let mut liar = sound.clone();
    liar[7] = 0xff;
    assert_eq!(
        ask(&lab, &liar).expect("an answer").metadata.response_code,
        ResponseCode::FormErr
    );
    let long = [sound.clone(), vec![0; 4000]].concat();
    let _ = ask(&lab, &long);
    assert!(address(&ask(&lab, &sound).expect("still alive")).is_some());
}

#[test]
fn the_same_over_tcp() {
    let lab = Lab::new(allowing(&["good.example"]));
    let mut stream = connect(lab.dns_tcp);
    for (name, code) in [
        ("good.example.", ResponseCode::NoError),
        ("bad.example.", ResponseCode::NXDomain),
    ] {
        let query = query(name, RecordType::A);
        stream
            .write_all(&(query.len() as u16).to_be_bytes())
            .expect("open");
        stream.write_all(&query).expect("open");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(
            Message::from_vec(&answer)
                .expect("it can be read")
                .metadata
                .response_code,
            code
        );
    }
    stream.write_all(&[0xff, 0xff]).expect("open");
    assert!(
        crate::common::is_closed(&mut stream),
        "no question is that long"
    );
}

#[test]
fn a_connection_to_a_handed_out_address_leads_to_its_name() {
    let server = Server::plain();
    let lab = Lab::new(allowing(&["good.example"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address);
    let answer = ask(&lab, &query("good.example.", RecordType::A)).expect("an answer");
    let handed_out = address(&answer).expect("an address");
    let say = |ip: Ipv4Addr, port: u16, bytes: &'static [u8]| {
        let gateway: Gateway = lab.gateway.clone();
        lab.block_on(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut near, far) = tokio::io::duplex(64 * 1024);
            let dialled = SocketAddr::new(ip.into(), port);
            let served = tokio::spawn(async move {
                gateway
                    .connection(far, ListenerKind::Transparent, Some(dialled))
                    .await
            });
            near.write_all(bytes).await.expect("open");
            near.shutdown().await.expect("open");
            let mut said = Vec::new();
            near.read_to_end(&mut said).await.expect("an end");
            served.await.expect("served");
            said
        })
    };
    let text = |said: Vec<u8>| String::from_utf8_lossy(&said).into_owned();
    let good = text(say(
        handed_out,
        80,
        b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n",
    ));
    assert!(good.starts_with("HTTP/1.1 200"), "{good}");
    let port = text(say(
        handed_out,
        8080,
        b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    ));
    assert!(port.contains("x-brig-reason: network.port"), "{port}");
    let fronted = text(say(
        handed_out,
        80,
        b"GET / HTTP/1.1\r\nHost: evil.io\r\nConnection: close\r\n\r\n",
    ));
    assert!(
        fronted.contains("x-brig-reason: network.mismatch"),
        "{fronted}"
    );
    // An address that was not handed out is only an address.
    let raw = text(say(
        Ipv4Addr::new(198, 18, 9, 9),
        80,
        b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    ));
    assert!(raw.contains("x-brig-reason: network.address"), "{raw}");
    let raw = text(say(
        Ipv4Addr::new(1, 1, 1, 1),
        80,
        b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    ));
    assert!(raw.contains("x-brig-reason: network.no-rule"), "{raw}");
    let tls = say(Ipv4Addr::new(1, 1, 1, 1), 443, b"\x16\x03\x01\x00\x05hello");
    assert_eq!(tls, [0x15, 3, 3, 0, 2, 2, 49], "an alert, access denied");
    assert!(say(Ipv4Addr::new(1, 1, 1, 1), 22, b"SSH-2.0-x\r\n").is_empty());
    assert_eq!(server.requests().len(), 1);
}

/// A guest tells of calls that named an address where nothing listens.
#[test]
fn what_was_named_inside_is_denied_by_its_name_and_counted() {
    let lab = Lab::new(allowing(&["good.example:443", "192.0.2.1:80"]));
    let answer = ask(&lab, &query("good.example.", RecordType::A)).expect("an answer");
    let pool = address(&answer).expect("an address");
    lab.seen.decided.lock().expect("not poisoned").clear();
    let named = |to: SocketAddr, protocol, count| lab.gateway.calls_to(to, protocol, count);
    named((pool, 5432).into(), Protocol::Tcp, 1);
    named((pool, 443).into(), Protocol::Udp, 2);
    named(([192, 0, 2, 1], 80).into(), Protocol::Tcp, 3);
    named(([169, 254, 169, 254], 80).into(), Protocol::Tcp, 4);
    // The sandbox's own.
    named(([127, 0, 0, 1], 80).into(), Protocol::Tcp, 5);
    lab.gateway.unreadable_address(Protocol::Tcp);
    let decided = lab.seen.decided.lock().expect("not poisoned");
    let told: Vec<(String, &str, u64)> = decided
        .iter()
        // Of another test that still sends to the port that a name server of its own had.
        .filter(|event| event.decision.target() != "(DNS message)")
        .map(|event| {
            assert!(!event.decision.allowed);
            let code = event.decision.reason.code();
            (event.decision.target(), code, event.count)
        })
        .collect();
    let expected = [
        ("good.example:5432", "network.port", 1),
        ("good.example:443", "network.protocol", 2),
        ("192.0.2.1:80", "network.unreachable", 3),
        ("169.254.169.254:80", "network.address", 4),
        ("unreadable address", "network.malformed", 1),
    ];
    let expected = expected.map(|(target, code, count)| (target.to_owned(), code, count));
    assert_eq!(told, expected);
}
