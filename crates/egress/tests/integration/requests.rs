//! Requests that say one thing and mean another. Each refusal stands beside the same thing allowed.

use std::io::{Read, Write};

use crate::common::server::Server;
use crate::common::{eventually, is_closed, lab, read_head};

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
        "good.example evil.io",
        "good.example\r\nX: y",
        "good.example#.evil.io",
        "xn--good-.example",
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
                .expect("valid")
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
fn a_websocket_passes_and_other_upgrades_do_not() {
    let server = Server::plain();
    let lab = lab(&server);
    let mut stream = lab.connect();
    let ask = "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("open");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101"));
    stream.write_all(b"ping").expect("open");
    let mut pong = [0; 4];
    stream.read_exact(&mut pong).expect("an echo");
    assert_eq!(&pong, b"ping");
    const MUCH: usize = 100_000;
    let mut writer = stream.try_clone().expect("a handle");
    let writing = std::thread::spawn(move || writer.write_all(&[7; MUCH]));
    stream.read_exact(&mut [0; MUCH]).expect("an echo");
    writing.join().expect("valid").expect("open");
    drop(stream);
    let closed = || lab.seen.closed.lock().expect("valid").clone();
    eventually("it has ended", || !closed().is_empty());
    let head = server.requests()[0].len();
    let closed = closed();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].sent, (head + 4 + MUCH) as u64, "each byte once");
    let answer = closed[0].received - (4 + MUCH) as u64;
    assert!(answer < 200, "each byte once: {answer}");
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
