//! Sessions under a policy, and policies of folders.

use std::fs;

use crate::common::{Brig, Done};
use serde_json::{Value, json};

const POLICY: &str = "\
name: demo
rules:
  - name: no-subprocess
    condition: {field: code, operator: contains, value: subprocess}
    action: deny
    message: no other programs
  - name: closed
    condition: {field: ticket, operator: eq, value: closed}
    action: deny
defaults: {action: allow}
env: {MODE: careful}
max_output_bytes: 8
";

fn with_session() -> Brig {
    let brig = Brig::new();
    brig.write("policy.yaml", POLICY);
    brig.run(["session", "create", "s", "--policy", "policy.yaml"])
        .exits(0)
        .prints("s\n");
    brig
}

fn exec(brig: &Brig, words: &[&str]) -> Done {
    let words = ["session", "exec", "s"].iter().chain(words);
    brig.run(words.copied().collect::<Vec<_>>())
}

#[test]
fn a_session_stays_under_the_policy_it_was_created_with() {
    let brig = with_session();
    let forbidden = ["-c", "import subprocess; print(1)"];
    exec(&brig, &["-c", "import os; print(os.environ['MODE'])"])
        .exits(0)
        .prints("careful\n");
    // Whatever becomes of the file.
    brig.write("policy.yaml", "defaults: {action: allow}\n");
    exec(&brig, &forbidden)
        .exits(126)
        .prints("")
        .complains("error: denied by policy: no other programs (rule `no-subprocess`, policy.rule)")
        .complains("hint: for the operator: this was decided by the policy that session `s`");
    exec(&brig, &["-c", "print('x' * 100)"])
        .exits(137)
        .prints("xxxxxxxx")
        .complains(
            "error: stdout was truncated after 8B of 101B: the policy allows no more output",
        );
    exec(&brig, &["-c", "print('x' * 7)"])
        .exits(0)
        .stays_silent();
    exec(&brig, &["--fact", "ticket=closed", "-c", "print(1)"])
        .exits(126)
        .complains("rule `closed`");
    exec(&brig, &["--context", "ticket=open", "-c", "print(1)"])
        .exits(0)
        .prints("1\n");
    exec(&brig, &["--fact", "code=x", "-c", "print(1)"])
        .exits(125)
        .complains("`code` is a fact that Brig states itself");
    exec(&brig, &["-e", "MODE=fast", "-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("`MODE` is set by policy `demo`");

    brig.run(["session", "checkpoint", "s", "before"]).exits(0);
    brig.run(["session", "fork", "s", "before", "--as", "t"])
        .exits(0);
    brig.run(["session", "exec", "t", "-c", "import subprocess"])
        .exits(126);
}

#[test]
fn every_execution_of_a_session_names_the_policy_that_decided() {
    let brig = with_session();
    let details = brig.run(["session", "inspect", "s", "--json"]).exits(0);
    let digest = details.json()["config"]["policies"]["digest"].clone();
    assert!(digest.as_str().unwrap().starts_with("sha256:"));
    exec(&brig, &["-c", "print(1)"]).exits(0);
    exec(&brig, &["-c", "import subprocess"]).exits(126);
    let receipts: Vec<Value> = records(&brig)
        .into_iter()
        .filter(|record| record["event"] == "receipt")
        .collect();
    assert_eq!(receipts.len(), 2);
    for receipt in receipts {
        assert_eq!(receipt["policy"], digest, "{receipt}");
    }
}

#[test]
fn a_kept_policy_that_was_changed_is_refused() {
    let brig = with_session();
    let file = brig
        .home()
        .join("state/brig/sessions/default/s/session.json");
    let kept = fs::read_to_string(&file).unwrap();
    let changed = kept.replace(
        r#"contains\",\"value\":\"subprocess"#,
        r#"contains\",\"value\":\"nothing"#,
    );
    assert_ne!(kept, changed);
    fs::write(&file, changed).unwrap();
    exec(&brig, &["-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("do not match the recorded digest");
    fs::write(&file, kept).unwrap();
    exec(&brig, &["-c", "print(1)"]).exits(0).prints("1\n");
}

#[test]
fn a_session_with_an_unknown_tool_is_refused_and_a_waiver_is_recorded() {
    let brig = Brig::new();
    let lists = "command_allowlist: [python3]\ntool_allowlist: [t]\n";
    brig.write(
        "lists.yaml",
        &format!("defaults: {{action: allow}}\n{lists}"),
    );
    let controls = ["tools"];
    for words in [
        vec!["session", "create", "s", "--json"],
        vec!["run", "--json", "-c", "print(1)"],
    ] {
        let place = if words[0] == "run" { 1 } else { words.len() };
        let mut words = words;
        words.splice(place..place, ["--policy", "lists.yaml"]);
        let done = brig.run(words).exits(125);
        let error = &done.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("no tool is named `t`"), "{error}");
    }
    brig.run(["session", "exec", "s", "-c", "print(1)"])
        .exits(125);

    let waive = controls.join(", ");
    brig.write(
        "waived.yaml",
        &format!("defaults: {{action: allow}}\n{lists}waive: [{waive}]\n"),
    );
    brig.run(["session", "create", "s", "--policy", "waived.yaml"])
        .exits(0);
    exec(&brig, &["-c", "print(1)"]).exits(0).prints("1\n");
    exec(&brig, &["--", "true"])
        .exits(126)
        .complains("`true` is not on the command allowlist of policy `unnamed` (policy.command)");
    let mut waived: Vec<String> = records(&brig)
        .into_iter()
        .filter(|record| record["event"] == "control_waived")
        .map(|record| record["control"].as_str().unwrap().to_owned())
        .collect();
    waived.sort_unstable();
    let mut expected = controls.map(String::from);
    expected.sort_unstable();
    assert_eq!(waived, expected);
}

fn records(brig: &Brig) -> Vec<Value> {
    let done = brig.run(["audit", "show", "--json"]).exits(0);
    (done.stdout().lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].take())
        .collect()
}

/// A tree with a policy at its root, and another for what is below `src`.
fn tree() -> Brig {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("tree/src/deep")).unwrap();
    fs::create_dir_all(brig.home().join("tree/own")).unwrap();
    brig.write(
        "tree/governance.yaml",
        "\
defaults: {action: allow}
rules:
  - {name: marked, condition: {field: code, operator: contains, value: mark}, action: audit}
  - {name: secret, condition: {field: code, operator: contains, value: secret}, action: deny}
",
    );
    brig.write(
        "tree/src/governance.yml",
        "\
scope: 'src/*'
defaults: {action: allow, timeout_seconds: 30}
rules:
  - {name: marked, condition: {field: code, operator: contains, value: mark}, action: deny, override: true}
  - {name: secret, condition: {field: code, operator: contains, value: secret}, action: allow, override: true}
  - {name: deep, condition: {field: path, operator: contains, value: deep}, action: deny}
",
    );
    brig.write(
        "tree/own/governance.yaml",
        "inherit: false\ndefaults: {action: allow}\n",
    );
    brig
}

#[test]
fn policies_of_folders_hold_from_the_root_down_to_the_path() {
    let brig = tree();
    let run = |path: &str, code: &str| {
        brig.run([
            "run",
            "--policy-root",
            "tree",
            "--policy-path",
            path,
            "-c",
            code,
        ])
    };
    run("tree", "print('mark')").exits(0).prints("mark\n");
    run("tree", "print('secret')")
        .exits(126)
        .complains("rule `secret`");
    run("tree/src/a.py", "print(1)").exits(0).prints("1\n");
    run("tree/src/a.py", "print('mark')")
        .exits(126)
        .complains("rule `marked`");
    // A denial above can't be taken back.
    run("tree/src/a.py", "print('secret')")
        .exits(126)
        .complains("rule `secret`");
    run("tree/src/deep", "print(1)")
        .exits(126)
        .complains("rule `deep`");
    run("tree/own/new.py", "print('secret')")
        .exits(0)
        .prints("secret\n");
    run("tree/own/../src/a.py", "print('mark')").exits(126);
    run(".", "print(1)")
        .exits(125)
        .prints("")
        .complains("is not below");
    let text = brig
        .run([
            "policy",
            "explain",
            "--policy-root",
            "tree",
            "--policy-path",
            "tree/src/deep",
            "--fact",
            "code=1",
        ])
        .exits(0)
        .stdout();
    assert!(text.starts_with("denied by rule `deep`"), "{text}");
    assert!(text.contains("src/governance.yml:2"), "{text}");
}

#[test]
fn a_path_that_policies_were_chosen_for_is_not_for_the_caller_to_say() {
    let brig = tree();
    let words = [
        "run",
        "--policy-root",
        "tree",
        "--policy-path",
        "tree/src/deep",
    ];
    brig.run(
        words
            .iter()
            .copied()
            .chain(["--fact", "path=harmless", "-c", "print(1)"]),
    )
    .exits(126)
    .complains("rule `deep`");
}

#[test]
fn where_a_policy_of_folders_is_asked_for_there_must_be_one() {
    let brig = tree();
    fs::create_dir(brig.home().join("bare")).unwrap();
    brig.run([
        "run",
        "--policy-root",
        "bare",
        "--policy-path",
        "bare",
        "-c",
        "print(1)",
    ])
    .exits(125)
    .prints("")
    .complains("there is no governance.yaml from");
    brig.write("tree/src/governance.yml", "rulse: []\n");
    brig.run([
        "run",
        "--policy-root",
        "tree",
        "--policy-path",
        "tree/src",
        "-c",
        "print(1)",
    ])
    .exits(125)
    .prints("")
    .complains("unknown key `rulse`");
    brig.run([
        "run",
        "--policy-root",
        "tree",
        "--policy",
        "p.yaml",
        "-c",
        "print(1)",
    ])
    .exits(125)
    .complains("cannot be used with");
}

#[test]
fn a_session_keeps_the_policies_of_its_folders() {
    let brig = tree();
    let create = [
        "session",
        "create",
        "s",
        "--policy-root",
        "tree",
        "--policy-path",
        "tree/src",
        "--json",
    ];
    let policy = brig.run(create).exits(0).json()["policy"].take();
    assert_ne!(policy, json!(null));
    fs::remove_dir_all(brig.home().join("tree")).unwrap();
    exec(&brig, &["-c", "print(1)"]).exits(0).prints("1\n");
    exec(&brig, &["-c", "print('secret')"]).exits(126);
}

#[test]
fn a_limit_of_the_policy_is_raised_there() {
    let brig = Brig::new();
    let policy = brig.home().join("limit.yaml");
    fs::write(
        &policy,
        "version: \"1.0\"\nname: limit\nrules: []\ndefaults: {action: allow, timeout_seconds: 1}\n",
    )
    .unwrap();
    let policy = policy.to_str().unwrap();
    brig.run(["run", "--policy", policy, "--", "sleep", "20"])
        .exits(124)
        .complains(
            "killed: ran longer than 1s; policy `limit` sets this limit, with `timeout_seconds`",
        );
    brig.run([
        "run",
        "--policy",
        policy,
        "--timeout",
        "200ms",
        "--",
        "sleep",
        "20",
    ])
    .exits(124)
    .complains("killed: ran longer than 200ms; raise the limit with --timeout");
}
