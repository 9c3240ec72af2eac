//! `--json`: one documented object on stdout, whatever happens.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Brig;
use serde_json::{Value, json};

const KEYS: [&str; 14] = [
    "agent_id",
    "backend",
    "commands",
    "decision",
    "egress",
    "enforcement",
    "error",
    "execution_id",
    "omitted",
    "result",
    "session_id",
    "status",
    "tools",
    "waived",
];

fn keys(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn a_run_gives_everything_in_one_object() {
    let brig = Brig::new();
    let code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)";
    let done = brig
        .run(["run", "--json", "--agent", "alice", "-c", code])
        .exits(3);
    let object = done.json();
    assert_eq!(keys(&object), KEYS);
    assert_eq!(object["agent_id"], "alice");
    assert_eq!(object["backend"], "native");
    assert_eq!(object["status"], "failed");
    assert_eq!(
        keys(&object["decision"]),
        ["allowed", "code", "reason", "rule"]
    );
    assert_eq!(object["decision"]["allowed"], true);
    let result = &object["result"];
    assert_eq!(
        keys(result),
        [
            "duration_seconds",
            "exit_code",
            "kill_detail",
            "kill_reason",
            "killed",
            "stderr",
            "stderr_bytes",
            "stdout",
            "stdout_bytes",
            "success",
            "truncated",
            "usage",
        ]
    );
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["success"], false);
    assert_eq!(result["stdout"], "out\n");
    assert_eq!(result["stderr"], "err\n");
    assert_eq!(result["stdout_bytes"], 4);
    assert_eq!(
        result["truncated"],
        json!({ "stdout": false, "stderr": false })
    );
    assert_eq!(result["killed"], false);
    assert!(result["usage"]["peak_memory_bytes"].as_u64().unwrap() > 0);
    assert_eq!(object["error"], Value::Null);
    assert_eq!(done.stderr(), "", "the program's stderr is in the object");
}

#[test]
fn a_kill_is_in_the_object() {
    let brig = Brig::new();
    let object = brig
        .run(["run", "--json", "--timeout", "0.3", "--", "sleep", "9"])
        .exits(124)
        .json();
    assert_eq!(object["result"]["killed"], true);
    assert_eq!(object["result"]["kill_reason"], "timeout");
    assert_eq!(object["result"]["kill_detail"], json!({ "limit_ms": 300 }));
}

#[test]
fn a_failure_has_the_same_keys() {
    let brig = Brig::new();
    for (args, exit, code) in [
        (
            &["run", "--json", "--mount", "/etc/ssh:/x", "-c", "1"][..],
            125,
            "input.mount",
        ),
        (
            &["run", "--json", "--backend", "microvm", "-c", "1"],
            125,
            "backend.unavailable",
        ),
        (
            &["run", "--json", "--", "no-such-program"],
            127,
            "run.cannot-start",
        ),
        (&["run", "--json"], 125, "input.usage"),
        (&["run", "--json", "--no-such-flag"], 125, "input.usage"),
        (
            &["session", "exec", "--json", "nobody", "--", "true"],
            125,
            "session.unknown",
        ),
    ] {
        let done = brig.run(args).exits(exit).complains("error: ");
        let object = done.json();
        assert_eq!(keys(&object), KEYS, "{args:?}");
        assert_eq!(object["error"]["code"], code, "{args:?}");
        assert_eq!(keys(&object["error"]), ["code", "hint", "message"]);
        assert_eq!(object["result"], Value::Null);
        assert_eq!(object["status"], "failed");
    }
}

#[test]
fn other_commands_fail_as_an_object_too() {
    let brig = Brig::new();
    for args in [
        &["session", "inspect", "--json", "nobody"][..],
        &["session", "cp", "--json", "a", "b"],
        &["session", "ls", "--json", "--agent", "a b"],
    ] {
        let object = brig.run(args).exits(125).json();
        assert_eq!(
            keys(&object["error"]),
            ["code", "hint", "message"],
            "{args:?}"
        );
    }
    // What follows `--` is no flag of ours.
    brig.run(["run", "--no-such-flag", "--", "x", "--json"])
        .exits(125)
        .prints("");
}

#[test]
fn doctor_and_version_are_objects() {
    let brig = Brig::new();
    let object = brig.run(["doctor", "--json"]).exits(0).json();
    let native = &object["backends"][0];
    assert_eq!(native["name"], "native");
    assert_eq!(native["usable"], true);
    let controls = native["controls"].as_array().unwrap();
    let names: Vec<&str> = controls
        .iter()
        .filter_map(|c| c["control"].as_str())
        .collect();
    for name in [
        "memory",
        "cpu",
        "processes",
        "disk",
        "network-off",
        "syscalls",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(brig.run(["version", "--json"]).exits(0).json()["version"].is_string());
}
