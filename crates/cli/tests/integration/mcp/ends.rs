//! However the client goes, nothing is left of what it started.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Client, Era};
use crate::common::Brig;

/// A server with a program in a session, and one without.
fn busy(brig: &Brig) -> (Client, [String; 2]) {
    let mut client = Client::start(brig, Era::Legacy, &[]);
    let names = ["61", "62"].map(|start| format!("{start}.{}", crate::common::digits()));
    client.send_call(
        "run_command",
        json!({"argv": ["sleep", names[0]], "session": "s"}),
    );
    client.send_call("run_command", json!({"argv": ["sleep", names[1]]}));
    wait_for(&names, true);
    (client, names)
}

fn wait_for(names: &[String; 2], running: bool) {
    let end = Instant::now() + Duration::from_secs(60);
    let is_running = |name: &String| crate::common::is_running(&format!("sleep\0{name}"));
    while names.iter().any(|name| is_running(name) != running) {
        assert!(Instant::now() < end, "running is not {running}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(client: &Client, name: &str) {
    let process = client.process().to_string();
    let sent = std::process::Command::new("kill")
        .args([name, &process])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_client_that_closes_its_end_leaves_nothing() {
    let brig = Brig::new();
    let (client, names) = busy(&brig);
    assert_eq!(client.close(), Some(0));
    wait_for(&names, false);
    let shown = brig.run(["audit", "show", "--json"]).exits(0).stdout();
    assert!(shown.contains("run.cancelled"), "{shown}");
    brig.run(["audit", "verify"]).exits(0);
    brig.run(["session", "ls", "--json"])
        .exits(0)
        .prints("{\"sessions\":[]}\n");
}

#[test]
fn a_signal_ends_it_in_order_and_a_kill_at_once() {
    let brig = Brig::new();
    let (mut client, names) = busy(&brig);
    signal(&client, "-TERM");
    assert_eq!(client.exit_code(), Some(143));
    wait_for(&names, false);
    let (mut client, names) = busy(&brig);
    signal(&client, "-KILL");
    assert_eq!(client.exit_code(), None);
    wait_for(&names, false);
}

#[test]
fn the_configuration_of_clients_starts_the_server() {
    let brig = Brig::new();
    brig.write(
        "p.yaml",
        "version: '1.0'\nname: p\nrules: []\ndefaults: {action: allow}\n",
    );
    let policy = brig.home().join("p.yaml").to_str().unwrap().to_owned();
    for (client, key) in [
        ("claude", "mcpServers"),
        ("cursor", "mcpServers"),
        ("vscode", "servers"),
    ] {
        let done = brig
            .run(["mcp", "config", client, "--policy", "p.yaml"])
            .exits(0);
        let object: serde_json::Value = serde_json::from_str(&done.stdout()).unwrap();
        let server = &object[key]["brig"];
        assert_eq!(server["args"], json!(["mcp", "--policy", policy]));
        // From another directory, as a client does.
        let mut command = brig.command(
            server["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_str().unwrap()),
        );
        command.current_dir("/");
        let mut client = Client::raw(&mut command, Era::Modern);
        assert!(client.request("tools/list", json!({}))["result"]["tools"].is_array());
    }
    let toml = brig
        .run(["mcp", "config", "codex", "--policy", "p.yaml"])
        .exits(0)
        .stdout();
    let read = "import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.argv[1])))";
    let read = std::process::Command::new("/usr/bin/python3")
        .args(["-I", "-c", read, &toml])
        .output();
    let object: serde_json::Value = serde_json::from_slice(&read.unwrap().stdout).unwrap();
    assert_eq!(
        object["mcp_servers"]["brig"]["args"],
        json!(["mcp", "--policy", policy])
    );
    brig.run(["mcp", "config", "claude", "--no-such"])
        .exits(125)
        .complains("--no-such");
}
