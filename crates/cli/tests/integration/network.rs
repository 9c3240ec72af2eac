//! What a session may reach, changed from outside. Servers live on this machine's loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use crate::common::Brig;
use serde_json::{Value, json};

/// Sends a line every now and then to whoever connects, until they are gone.
fn ticking() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while stream.write_all(b"tick\n").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    port
}

/// Says each line that it hears, and then that it is over.
fn listen_to(port: u16) -> String {
    format!(
        "import socket\n\
         proxy = socket.create_connection(('127.0.0.1', 3128))\n\
         proxy.sendall(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')\n\
         try:\n    for line in proxy.makefile(): print(line.strip(), flush=True)\n\
         except OSError: pass\n\
         print('over')\n"
    )
}

#[test]
fn a_session_is_opened_and_closed_from_outside() {
    let brig = Brig::new();
    let port = ticking();
    let host = format!("127.0.0.1:{port}/tcp");
    brig.run(["session", "create", "s"]).exits(0);
    let script = listen_to(port);
    brig.run(["session", "exec", "s", "-c", &script]).exits(1);

    let changed = brig.run(["session", "network", "allow", "s", &host, "--json"]);
    assert_eq!(changed.exits(0).json()["allow"][0], *host);
    let mut running = brig
        .command(["session", "exec", "s", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let heard = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line == "tick");
    assert!(heard, "what was allowed is reached");

    brig.run(["session", "network", "block", "s", &host])
        .exits(0);
    let last = lines.map_while(Result::ok).last();
    assert_eq!(last.as_deref(), Some("over"), "the connection was closed");
    assert!(running.wait().unwrap().success());

    brig.run(["session", "network", "show", "s"])
        .exits(0)
        .prints(&format!("block {host}\n"));
    let records = |event| -> Vec<Value> {
        let shown = brig.run(["audit", "show", "--json", "--event", event]);
        let lines = shown.exits(0).stdout();
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["record"].take();
        lines.lines().map(record).collect()
    };
    assert_eq!(records("allowlist_changed").len(), 2);
    for event in ["egress_decided", "egress_closed"] {
        let [one] = &records(event)[..] else {
            panic!("{event}: {:?}", records(event));
        };
        assert_eq!(one["allowed"], true, "{one}");
        assert_eq!(one["host"], "127.0.0.1", "{one}");
        assert_eq!(one["port"], port, "{one}");
        assert_eq!(one["raw"], true, "{one}");
        assert_eq!(one["address"], "127.0.0.1", "{one}");
        let received = one["carried"]["received"].as_u64();
        assert_eq!(received > Some(4), event == "egress_closed", "{one}");
    }
}

#[test]
fn what_is_no_host_changes_nothing() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    for wrong in ["a.org,b.org", "https://a.org", "*", "*.com", "a b", ""] {
        brig.run(["session", "network", "allow", "s", "good.org", wrong])
            .exits(125);
    }
    brig.run(["session", "network", "show", "s"])
        .exits(0)
        .prints("");
    brig.run(["session", "network", "allow", "t", "good.org"])
        .exits(125)
        .complains("no session `t`");
}

#[test]
fn a_host_is_blocked_and_unblocked() {
    let brig = Brig::new();
    let network = |verb: &str, more: &[&str]| {
        let line = ["session", "network", verb, "s"];
        brig.run(line.iter().chain(more).copied().collect::<Vec<_>>())
            .exits(0)
    };
    brig.run(["session", "create", "s"]).exits(0);
    network("allow", &["example.com"]).prints("allow example.com\n");
    for verb in ["block", "deny"] {
        network(verb, &["example.com"]).prints("block example.com\n");
        network("unblock", &["example.com"]).prints("");
    }
    let shown = network("show", &["--json"]).json();
    assert_eq!(shown["allow"], json!([]), "unblocking allows nothing");
    assert_eq!(shown["deny"], json!([]));
}
