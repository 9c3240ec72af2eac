//! `--json`: one documented object on stdout, whatever happens.

use crate::common::Brig;
use serde_json::{Value, json};

const KEYS: [&str; 19] = [
    "agent_id",
    "backend",
    "commands",
    "decision",
    "denials",
    "egress",
    "enforcement",
    "error",
    "execution_id",
    "omitted",
    "problems",
    "receipt",
    "result",
    "runtime",
    "session_id",
    "status",
    "tools",
    "totals",
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
        ["allowed", "approval", "code", "reason", "rule"]
    );
    assert_eq!(object["decision"]["allowed"], true);
    let result = &object["result"];
    assert_eq!(
        keys(result),
        [
            "duration_seconds",
            "encoding",
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
            "backend.unknown",
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
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(
        keys(&controls[0]),
        ["by", "control", "fix", "meaning", "strength"]
    );
    let finding = &native["findings"][0];
    assert_eq!(keys(finding), ["detail", "fix", "good", "what"]);
    assert!(brig.run(["version", "--json"]).exits(0).json()["version"].is_string());
}

/// The examples in the documentation, each line an object.
fn examples(heading: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/json.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once(heading).expect("the section");
    let (_, block) = section.split_once("```json\n").expect("an example");
    let (block, _) = block.split_once("```").expect("its end");
    let objects = serde_json::Deserializer::from_str(block).into_iter::<Value>();
    objects.map(|object| object.expect("JSON")).collect()
}

const EVENTS: &str = "import sys, urllib.request\n\
    print('installing é', flush=True)\n\
    sys.stderr.buffer.write(bytes([255, 0, 1, 2])); sys.stderr.flush()\n\
    try: urllib.request.urlopen('https://pypi.org', timeout=20)\n\
    except OSError: pass\n\
    sys.exit(3)\n";

#[test]
fn a_stream_has_an_event_on_each_line_as_documented() {
    let brig = Brig::new();
    let words = ["--allow", "none.example.com", "-c", EVENTS];
    let done = brig.run([&["run", "--json=stream"], &words[..]].concat());
    let done = done.exits(3);
    let stdout = done.stdout();
    let lines: Vec<Value> = (stdout.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |event: &str| {
        let found = lines.iter().find(|line| line["event"] == event);
        found.unwrap_or_else(|| panic!("no {event}: {stdout}"))
    };
    assert_eq!(lines[0]["event"], "start");
    // The program may write it in several pieces.
    let pieces = lines.iter().filter(|line| line["event"] == "stdout");
    let text: String = pieces.map(|line| line["data"].as_str().unwrap()).collect();
    assert_eq!(text, "installing é\n");
    assert_eq!(of("stdout")["encoding"], "utf-8");
    assert_eq!(of("stderr")["data"], "/wABAg==");
    assert_eq!(of("stderr")["encoding"], "base64");
    assert_eq!(of("attempt")["host"], "pypi.org");
    assert_eq!(of("attempt")["allowed"], false);
    let end = lines.last().unwrap();
    assert_eq!(end["event"], "end");
    assert_eq!(end["execution_id"], lines[0]["execution_id"]);
    assert_eq!(end["result"]["exit_code"], 3);
    assert_eq!(end["denials"][0]["what"], "pypi.org:443");
    let all: Vec<&str> = (keys(end).into_iter())
        .filter(|key| *key != "event")
        .collect();
    assert_eq!(all, KEYS);
    for example in examples("## Events") {
        let event = of(example["event"].as_str().unwrap());
        for key in keys(&example) {
            assert!(event.get(key).is_some(), "`{key}` in {event}");
        }
        if event["event"] != "end" {
            assert_eq!(keys(&example), keys(event));
        }
    }
    let denial = &examples("### Denials")[0];
    assert_eq!(keys(denial), keys(&end["denials"][0]));

    // In a session, and where nothing is started.
    brig.run(["session", "create", "s"]).exits(0);
    let done = brig.run(["session", "exec", "--json=stream", "s", "-c", "print(1)"]);
    let stdout = done.exits(0).stdout();
    assert!(stdout.starts_with("{\"event\":\"start\""), "{stdout}");
    assert_eq!(stdout.matches("\"event\":\"end\"").count(), 1, "{stdout}");
    let done = brig
        .run(["run", "--json=stream", "no-such-file"])
        .exits(125);
    assert_eq!(done.json()["event"], "end");
}

#[test]
fn a_stream_without_a_reader_ends_quietly() {
    let brig = Brig::new();
    let mut child = brig
        .command(["run", "--json=stream", "--", "yes"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut stdout, &mut [0; 100]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn problems_of_policies_are_in_the_object() {
    let brig = Brig::new();
    brig.write("bad.yaml", "name: p\nrulse: []\n");
    let run = ["run", "--json", "--policy", "bad.yaml", "-c", "print(1)"];
    let object = brig.run(run).exits(125).json();
    assert_eq!(object["problems"][0]["severity"], "error");
    assert_eq!(object["problems"][0]["line"], 2);
    assert_eq!(object["error"]["code"], "policy.invalid");
    // A warning does not stop the run.
    let run = [&run[..2], &["--compat", "agt"], &run[2..]].concat();
    let object = brig.run(run).exits(0).json();
    assert_eq!(object["problems"][0]["severity"], "warning");
    assert_eq!(object["error"], Value::Null);
    let object = brig.run(["run", "--json", "-c", "print(1)"]).json();
    assert_eq!(object["problems"], json!([]));
}
