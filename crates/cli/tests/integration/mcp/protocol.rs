//! The protocol: both generations, what is malformed, progress, cancellation, many calls at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, ERAS, Era};
use crate::common::Brig;

#[test]
fn both_generations_are_spoken() {
    let brig = Brig::new();
    let mut modern = Client::start(&brig, Era::Modern, &[]);
    let found = modern.request("server/discover", json!({}));
    let versions = found["result"]["supportedVersions"].to_string();
    assert!(
        versions.contains("2026-07-28") && versions.contains("2025-11-25"),
        "{found}"
    );
    let listed = modern.request("tools/list", json!({}));
    assert_eq!(listed["result"]["resultType"], "complete");
    assert_eq!(listed["result"]["cacheScope"], "private");

    let args = ["mcp", "--quiet"];
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut legacy = Client::raw(&mut brig.command(args), Era::Legacy);
        let asked = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = legacy.request("initialize", asked);
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_eq!(answer["result"]["serverInfo"]["name"], "brig");
        assert!(
            answer["result"]["instructions"]
                .as_str()
                .unwrap()
                .contains("no network")
        );
    }
}

#[test]
fn what_is_malformed_ends_nothing() {
    for era in ERAS {
        let brig = Brig::new();
        let mut client = Client::start(&brig, era, &[]);
        client.done("end_session", json!({"session": "none"}));
        let unknown = client.request(
            "tools/call",
            json!({"name": "no_such\u{202e}", "arguments": {}}),
        );
        assert_eq!(unknown["error"]["code"], -32602);
        assert!(
            unknown["error"]["message"]
                .as_str()
                .unwrap()
                .contains("\\u{202e}")
        );
        let unknown = client.request("no/such", json!({}));
        assert_eq!(unknown["error"]["code"], -32601);
        client.write_bytes(b"{\n\n\xff\xfe\n[1, 2\nnull\r\n");
        client.write_bytes(&[b'x'; 17 * 1024 * 1024]);
        client.write_bytes(b"\n");
        client.write(&"[".repeat(200_000));
        // The next answer may be to one of them, without an id.
        let id = client.send_call("run_code", json!({"code": "print(1)"}));
        let answer = loop {
            let message = client.message();
            if message["id"] == id {
                break message;
            }
            assert!(
                message["id"].is_null() && message["error"].is_object(),
                "{message}"
            );
        };
        assert_eq!(answer["result"]["structuredContent"]["stdout"], "1\n");
        assert_eq!(client.close(), Some(0));
    }
}

#[test]
fn progress_is_sent_to_clients_that_request_it() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Legacy, &[]);
    let command = "for i in 1 2 3 4 5; do echo step $i; sleep 0.5; done";
    let call = |meta: Value| json!({"name": "run_command", "arguments": {"command": command}, "_meta": meta});
    let answer = client.request("tools/call", call(json!({"progressToken": "p1"})));
    assert_eq!(answer["result"]["structuredContent"]["exit_code"], 0);
    let told = std::mem::take(&mut client.notifications);
    assert!(!told.is_empty());
    for one in &told {
        assert_eq!(
            (&one["method"], &one["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p1"))
        );
        assert!(
            one["params"]["message"]
                .as_str()
                .unwrap()
                .starts_with("step "),
            "{one}"
        );
    }
    client.request("tools/call", call(json!({})));
    assert_eq!(client.notifications, Vec::<Value>::new());
}

#[test]
fn cancelling_a_call_ends_its_execution() {
    for era in ERAS {
        let brig = Brig::new();
        let mut client = Client::start(&brig, era, &[]);
        let seconds = format!("57.{}", crate::common::digits());
        let is_running = || crate::common::is_running(&format!("sleep\0{seconds}"));
        let id = client.send_call(
            "run_command",
            json!({"argv": ["sleep", seconds], "session": "s"}),
        );
        wait_until(is_running);
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        client.write(&cancelled.to_string());
        wait_until(|| !is_running());
        // The session goes on, and the call is not answered any more.
        let ran = client.done("run_command", json!({"command": "echo on", "session": "s"}));
        assert_eq!(ran["stdout"], "on\n");
        assert_eq!(client.close(), Some(0));
        let shown = brig.run(["audit", "show", "--json"]).exits(0).stdout();
        assert!(shown.contains("run.cancelled"), "{shown}");
    }
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_never_runs() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Legacy, &[]);
    client.done("run_code", json!({"code": "1", "session": "s"}));
    // As many as run at once, until the file is there.
    let wait = "until test -e /workspace/go; do sleep 0.02; done";
    let waiting: Vec<u64> = (0..8)
        .map(|_| client.send_call("run_command", json!({"command": wait, "session": "s"})))
        .collect();
    let mark = |name: &str| json!({"command": format!("echo >> {name}"), "session": "s"});
    let cancelled = client.send_call("run_command", mark("cancelled"));
    let kept = client.send_call("run_command", mark("kept"));
    let cancel = |id: u64| {
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            .to_string()
    };
    client.write(&cancel(cancelled));
    // Cancelling all but one gives turns to those that wait.
    for id in &waiting[1..] {
        client.write(&cancel(*id));
    }
    assert_eq!(client.message()["id"], kept);
    let listed = client.done("list_files", json!({"session": "s"}));
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["entries"][0]["path"], "kept");
}

#[test]
fn many_calls_at_once_are_all_answered() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    client.done("run_code", json!({"code": "1", "session": "s"}));
    let mut expected = BTreeSet::new();
    for number in 0..30 {
        let session = if number % 3 == 0 {
            json!("s")
        } else {
            json!(null)
        };
        let command = format!("echo {number}");
        expected.insert(client.send_call(
            "run_command",
            json!({"command": command, "session": session}),
        ));
    }
    // More than may wait: each is answered, and what is refused may be retried.
    for _ in 0..80 {
        expected
            .insert(client.send_call("run_command", json!({"command": "true", "session": "s"})));
    }
    let mut refused = 0;
    while !expected.is_empty() {
        let message = client.message();
        assert!(
            expected.remove(&message["id"].as_u64().unwrap()),
            "{message}"
        );
        let result = &message["result"];
        if result["isError"] == true {
            assert_eq!(result["structuredContent"]["code"], "mcp.busy", "{message}");
            assert_eq!(result["structuredContent"]["retryable"], true);
            refused += 1;
        }
    }
    assert!(refused <= 40, "{refused}");
    client.done("run_code", json!({"code": "1"}));
}

#[test]
fn sessions_are_few_and_end_when_they_are_idle() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &["--session-idle", "3s"]);
    client.done(
        "write_file",
        json!({"session": "idle", "path": "a", "content": "x"}),
    );
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let listed = client.request("resources/list", json!({}));
        let all = listed["result"]["resources"].as_array().unwrap().len();
        if all == 2 {
            break;
        }
        assert!(Instant::now() < end, "{listed}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut client = Client::start(&brig, Era::Modern, &[]);
    for number in 0..16 {
        client.done("list_files", json!({"session": format!("s{number}")}));
    }
    let why = client.failed("list_files", json!({"session": "one-more"}));
    assert_eq!(why["code"], "mcp.sessions");
    client.done("end_session", json!({"session": "s0"}));
    client.done("list_files", json!({"session": "one-more"}));
}

fn wait_until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "it does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}
