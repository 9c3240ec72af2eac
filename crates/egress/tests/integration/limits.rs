//! Slow, greedy and stubborn clients, rules that change, and a gateway that dies.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::server::{Identity, Server, echoes};
use crate::common::{Lab, PUBLIC, allowing, connect, eventually, is_closed, read_head, rules};
use brig_egress::{Layer, LayerKind, Limits};

/// Short enough to wait for, and long for a machine that is busy with other things.
fn quick() -> Limits {
    Limits {
        asking: Duration::from_secs(2),
        idle: Duration::from_secs(3),
        ..Limits::default()
    }
}

#[test]
fn a_client_that_never_asks_is_closed() {
    let server = Server::plain();
    let lab = Lab::with_limits(allowing(&["good.example", "good.example:8080"]), quick());
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address)
        .route(PUBLIC, 8080, server.address);
    assert!(lab.get("http://good.example/").starts_with("HTTP/1.1 200"));
    let mut waiting: Vec<(&[u8], TcpStream)> = Vec::new();
    for first in [
        &b""[..],
        b"GET http://good.example/ HT",
        b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX:",
        b"CONNECT good.example:443 HTTP/1.1\r\n",
        b"\x05",
        b"\x05\x01\x00\x05\x01\x00\x03\x0cgood",
    ] {
        waiting.push((first, lab.connect()));
    }
    // The same inside a tunnel: half a request, half a hello, and silence.
    for first in [&b"GET / HTTP"[..], b"\x16\x03\x01\x02\x00", b""] {
        waiting.push((first, lab.tunnel("good.example:8080").0));
    }
    for (first, stream) in &mut waiting {
        stream.write_all(first).expect("it listens");
    }
    for (first, stream) in &mut waiting {
        assert!(is_closed(stream), "{:?}", String::from_utf8_lossy(first));
    }
}

#[test]
fn a_trickle_does_not_reset_the_clock_of_a_head() {
    let lab = Lab::with_limits(allowing(&["good.example"]), quick());
    let mut stream = lab.connect();
    let mut alive = 0;
    // A byte every 50 ms: each one comes in time, all of them do not.
    for byte in b"GET http://good.example/".iter().cycle().take(400) {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        alive += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(alive < 400, "it never closed");
}

#[test]
fn heads_have_a_size() {
    let server = Server::plain();
    let lab = Lab::new(allowing(&["good.example"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address);
    let ask = |filler: &str| {
        let head = format!(
            "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n{filler}Connection: close\r\n\r\n"
        );
        lab.raw(head.as_bytes())
    };
    assert!(ask(&format!("X: {}\r\n", "a".repeat(8000))).starts_with("HTTP/1.1 200"));
    let line = ask(&format!("X: {}\r\n", "a".repeat(1 << 20)));
    assert!(!line.contains("200 OK"), "{line}");
    let many = ask(&"X: a\r\n".repeat(1000));
    assert!(!many.contains("200 OK"), "{many}");
    let url = lab.raw(
        format!(
            "GET http://good.example/{} HTTP/1.1\r\nHost: good.example\r\n\r\n",
            "a".repeat(1 << 20)
        )
        .as_bytes(),
    );
    assert!(!url.contains("200 OK"), "{url}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn connections_are_counted_and_one_more_is_closed() {
    let server = Server::plain();
    let limits = Limits {
        connections: 20,
        ..Limits::default()
    };
    let lab = Lab::with_limits(allowing(&["good.example"]), limits);
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address);
    let mut half_open: Vec<TcpStream> = (0..20).map(|_| connect(lab.proxy)).collect();
    for stream in &mut half_open {
        stream.write_all(b"GET").expect("it listens");
    }
    eventually("the next is closed", || {
        let mut stream = connect(lab.proxy);
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("valid");
        matches!(stream.read(&mut [0]), Ok(0)) || stream.write_all(b"GET").is_err()
    });
    assert_eq!(
        lab.last_denial(),
        "`one more connection` is denied: too many connections are open"
    );
    drop(half_open);
    eventually("there is room again", || {
        lab.get("http://good.example/").starts_with("HTTP/1.1 200")
    });
}

#[test]
fn a_silent_tunnel_ends_and_a_busy_one_does_not() {
    let lab = Lab::with_limits(allowing(&["good.example:7/tcp"]), quick());
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 7, echoes());
    let (mut stream, head) = lab.tunnel("good.example:7");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for _ in 0..16 {
        stream.write_all(b"\0ping").expect("open");
        stream
            .read_exact(&mut [0; 5])
            .expect("longer open than it may be silent");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(is_closed(&mut stream));
    eventually("the end is told", || {
        !lab.seen.closed.lock().expect("not poisoned").is_empty()
    });
    let closed = lab.seen.closed.lock().expect("not poisoned")[0].clone();
    assert_eq!(closed.end.map(|end| end.code()), Some("network.limit"));
    assert_eq!((closed.sent, closed.received), (80, 80));
}

#[test]
fn everything_has_a_longest_life() {
    let limits = Limits {
        lifetime: Duration::from_secs(3),
        ..Limits::default()
    };
    let lab = Lab::with_limits(allowing(&["good.example:7/tcp"]), limits);
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 7, echoes());
    let (mut stream, head) = lab.tunnel("good.example:7");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(is_closed(&mut stream));
}

#[test]
fn connections_that_are_no_longer_allowed_are_closed() {
    let identity = Identity::new(&["tls.example"]);
    let (plain, tls) = (Server::plain(), Server::tls(&identity));
    let lab = Lab::new(allowing(&[
        "stays.example:7/tcp",
        "goes.example:7/tcp",
        "tls.example",
        "web.example",
    ]));
    lab.name("stays.example", &[PUBLIC])
        .name("goes.example", &[PUBLIC])
        .route(PUBLIC, 7, echoes());
    lab.name("tls.example", &[PUBLIC])
        .route(PUBLIC, 443, tls.address);
    lab.name("web.example", &[PUBLIC])
        .route(PUBLIC, 80, plain.address);
    let open = |name: &str| {
        let (mut stream, head) = lab.tunnel(&format!("{name}:7"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream.write_all(b"\0").expect("open");
        stream.read_exact(&mut [0]).expect("an echo");
        stream
    };
    let (mut stays, mut goes) = (open("stays.example"), open("goes.example"));
    // One that has not begun, and a kept-alive one between requests.
    let (mut silent, _) = lab.tunnel("tls.example:443");
    let mut web = lab.connect();
    web.write_all(b"GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n")
        .expect("open");
    assert!(read_head(&mut web).starts_with("HTTP/1.1 200"));
    web.read_exact(&mut [0; 8]).expect("a body");

    assert_eq!(plain.open(), 1, "kept for the next request");

    let blocked = rules(&["goes.example", "tls.example", "web.example"]);
    let generation = lab
        .rules
        .change(|layers| layers.push(Layer::new(LayerKind::Session).deny(blocked)));
    assert_eq!(generation, 1);
    assert!(is_closed(&mut goes));
    assert!(is_closed(&mut silent));
    eventually("the kept connection is closed", || plain.open() == 0);
    stays.write_all(b"\0").expect("open");
    stays
        .read_exact(&mut [0])
        .expect("what is still allowed stays open");
    let _ = web.write_all(b"GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n");
    let again = read_head(&mut web);
    assert!(
        again.contains("network.blocked") || again.is_empty(),
        "{again}"
    );
    eventually("the end is told", || {
        let closed = lab.seen.closed.lock().expect("not poisoned");
        let revoked = |event: &&brig_egress::Closed| {
            event
                .end
                .as_ref()
                .is_some_and(|end| end.code() == "network.revoked")
        };
        closed.iter().filter(revoked).count() >= 2
    });
    assert_eq!(
        lab.get("http://web.example/")
            .matches("network.blocked")
            .count(),
        1
    );
    let last = lab
        .seen
        .decided
        .lock()
        .expect("valid")
        .last()
        .expect("a decision")
        .decision
        .clone();
    assert_eq!(last.generation, 1);
    // And back.
    lab.rules
        .change(|layers| layers.retain(|layer| layer.kind != LayerKind::Session));
    assert!(lab.get("http://web.example/").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_long_answer_is_cut_when_the_rules_change() {
    let server = Server::plain();
    let lab = Lab::new(allowing(&["good.example"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address);
    let mut stream = lab.connect();
    stream
        .write_all(
            b"GET http://good.example/bytes/100000000 HTTP/1.1\r\nHost: good.example\r\n\r\n",
        )
        .expect("open");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    lab.rules.change(Vec::clear);
    let mut rest = 0;
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        rest += length;
    }
    assert!(rest < 100_000_000, "it came whole");
}

#[test]
fn connections_end_together_and_their_ends_are_told() {
    let lab = Lab::new(allowing(&["good.example:7/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 7, echoes());
    let open = || {
        let (mut stream, head) = lab.tunnel("good.example:7");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream.write_all(b"\0").expect("open");
        stream.read_exact(&mut [0]).expect("an echo");
        stream
    };
    let mut before: Vec<TcpStream> = (0..5).map(|_| open()).collect();
    assert!(lab.seen.closed.lock().expect("not poisoned").is_empty());
    let ended = lab.gateway.end_connections();
    let mut after = open();
    lab.block_on(ended);
    let told = lab.seen.closed.lock().expect("not poisoned").clone();
    assert_eq!(told.len(), 5);
    assert!(told.iter().all(|one| (one.sent, one.received) == (1, 1)));
    assert!(before.iter_mut().all(is_closed));
    after.write_all(b"\0").expect("open");
    after
        .read_exact(&mut [0])
        .expect("what came later stays open");
}

#[test]
fn without_the_gateway_there_is_no_network() {
    let server = Server::plain();
    let mut lab = Lab::new(allowing(&["good.example", "good.example:7/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address)
        .route(PUBLIC, 7, echoes());
    assert!(lab.get("http://good.example/").starts_with("HTTP/1.1 200"));
    let (mut stream, _) = lab.tunnel("good.example:7");
    lab.crash();
    assert!(is_closed(&mut stream));
    eventually("nobody listens", || TcpStream::connect(lab.proxy).is_err());
}

#[test]
fn gateways_do_not_share_rules() {
    let server = Server::plain();
    let (one, two) = (
        Lab::new(allowing(&["one.example"])),
        Lab::new(allowing(&["two.example"])),
    );
    for lab in [&one, &two] {
        lab.name("one.example", &[PUBLIC])
            .name("two.example", &[PUBLIC])
            .route(PUBLIC, 80, server.address);
    }
    assert!(one.get("http://one.example/").starts_with("HTTP/1.1 200"));
    assert!(two.get("http://two.example/").starts_with("HTTP/1.1 200"));
    assert!(one.get("http://two.example/").starts_with("HTTP/1.1 403"));
    assert!(two.get("http://one.example/").starts_with("HTTP/1.1 403"));
}

#[test]
fn many_bytes_pass_unchanged_both_ways_and_are_counted() {
    const MANY: usize = 40_000_000;
    let lab = Lab::new(allowing(&["good.example:7/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 7, echoes());
    let (stream, head) = lab.tunnel("good.example:7");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let byte = |at: usize| (at * 31 % 251) as u8;
    let mut sender = stream.try_clone().expect("the same stream");
    let sending = std::thread::spawn(move || {
        // It must not look like the beginning of a request.
        sender.write_all(&[0]).expect("open");
        let bytes: Vec<u8> = (0..MANY).map(byte).collect();
        sender.write_all(&bytes).expect("open");
        sender.shutdown(std::net::Shutdown::Write).expect("open");
    });
    let mut all = Vec::new();
    (&stream).read_to_end(&mut all).expect("the end");
    sending.join().expect("sent");
    assert_eq!(all.len(), MANY + 1);
    assert!(
        all.iter()
            .skip(1)
            .enumerate()
            .all(|(at, got)| *got == byte(at))
    );
    eventually("the end is told", || {
        !lab.seen.closed.lock().expect("not poisoned").is_empty()
    });
    let closed = lab.seen.closed.lock().expect("not poisoned")[0].clone();
    assert_eq!(
        (closed.sent, closed.received),
        (MANY as u64 + 1, MANY as u64 + 1)
    );
    assert!(closed.end.is_none());
}
