//! Policies on the command line.

use crate::common::Brig;
use serde_json::Value;

const POLICY: &str = "\
name: demo
rules:
  - name: no-subprocess
    condition: {field: code, operator: contains, value: subprocess}
    action: deny
    priority: 10
    message: no other programs
  - name: no-curl
    condition: {field: command, operator: matches, value: '\\bcurl\\b'}
    action: block
defaults:
  action: allow
  timeout_seconds: 20
";

fn brig() -> Brig {
    let brig = Brig::new();
    brig.write("policy.yaml", POLICY);
    brig
}

#[test]
fn a_valid_policy_is_reported_with_its_digest() {
    let done = brig().run(["policy", "check", "policy.yaml"]).exits(0);
    assert!(
        done.stdout()
            .starts_with("policy.yaml: valid, 2 rules, sha256:"),
        "{done:?}"
    );
    done.stays_silent();
}

#[test]
fn everything_wrong_with_a_policy_is_told_at_once_with_a_fix() {
    let brig = brig();
    brig.write("bad.yaml", "name: x\nrulse: []\ndefaults: {action: alow}\n");
    brig.run(["policy", "check", "policy.yaml", "bad.yaml"])
        .exits(1)
        .complains("error: bad.yaml:2:1: rulse: unknown key `rulse` [policy.unknown-key]")
        .complains("hint: did you mean `rules`?")
        .complains("error: bad.yaml:3:20: defaults.action: must be one of")
        .complains("hint: did you mean `allow`?");
    let object = brig
        .run(["policy", "check", "--json", "bad.yaml"])
        .exits(1)
        .json();
    assert_eq!(object["valid"], false);
    assert_eq!(
        object["files"][0]["problems"][0]["code"],
        "policy.unknown-key"
    );
    assert_eq!(object["files"][0]["problems"][0]["line"], 2);
    brig.run(["policy", "check", "--compat", "agt", "bad.yaml"])
        .exits(1);
    brig.write("lenient.yaml", "name: x\nrulse: []\n");
    brig.run(["policy", "check", "--compat", "agt", "lenient.yaml"])
        .exits(0)
        .complains("warning: lenient.yaml:2:1: rulse: unknown key");
    brig.run(["policy", "check", "missing.yaml"])
        .exits(125)
        .complains("file `missing.yaml`: no such file");
}

#[test]
fn an_explanation_says_why_and_what_would_change_it() {
    let brig = brig();
    let done = brig
        .run([
            "policy",
            "explain",
            "policy.yaml",
            "--fact",
            "code=import subprocess",
        ])
        .exits(0);
    let text = done.stdout();
    for part in [
        "denied by rule `no-subprocess` of policy `demo`: no other programs\n",
        "no-subprocess  deny    policy.yaml:3  match",
        "no-curl        block   policy.yaml:8  not reached",
        "timeout_seconds           20",
        "policy.yaml:13",
        "max_processes             256",
        "Brig's default",
        "for the caller to enforce",
        "native: ",
        "would be allowed if `code` did not contain `subprocess`\n",
    ] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    let number = brig
        .run(["policy", "explain", "policy.yaml", "--context", "code=1"])
        .exits(0)
        .stdout();
    assert!(number.starts_with("allowed by the default"), "{number}");
    brig.write(
        "facts.json",
        r#"{"command": "curl x", "argv": ["curl", "x"]}"#,
    );
    let object = brig
        .run([
            "policy",
            "explain",
            "policy.yaml",
            "--context",
            "facts.json",
            "--json",
        ])
        .exits(0)
        .json();
    assert_eq!(object["answer"]["matched_rule"], "no-curl");
    assert_eq!(object["considered"][0]["outcome"], "missing");
    assert_eq!(object["command"], Value::Null);
    brig.run([
        "policy",
        "explain",
        "policy.yaml",
        "--context",
        "{\"a\": 1,}",
    ])
    .exits(125)
    .complains("context.json:1:9: not JSON");
}

#[test]
fn cases_are_tried_and_failures_have_their_place() {
    let brig = brig();
    brig.write(
        "cases.yaml",
        "cases:\n  - name: plain\n    context: {code: x}\n    expect: allow\n  - name: shell\n    context: {code: subprocess}\n    expect: allow\n",
    );
    let done = brig
        .run(["policy", "test", "policy.yaml", "cases.yaml"])
        .exits(1);
    assert_eq!(
        done.stdout(),
        "ok      plain\nFAILED  shell (cases.yaml:5): `allowed` is False, expected True\n1 passed, 1 failed\n"
    );
    let object = brig
        .run(["policy", "test", "--json", "policy.yaml", "cases.yaml"])
        .exits(1)
        .json();
    assert_eq!(
        (object["passed"].as_u64(), object["failed"].as_u64()),
        (Some(1), Some(1))
    );
}

#[test]
fn a_diff_says_what_is_newly_possible() {
    let brig = brig();
    brig.write(
        "new.yaml",
        &POLICY
            .replace("timeout_seconds: 20", "timeout_seconds: 30")
            .replace("action: deny", "action: audit"),
    );
    let text = brig
        .run(["policy", "diff", "policy.yaml", "new.yaml"])
        .exits(0)
        .stdout();
    assert!(
        text.starts_with("newly possible:\n+ rules: denied by rule `no-subprocess` before"),
        "{text}"
    );
    assert!(text.contains("{\"code\":\"subprocess\"}"), "{text}");
    assert!(
        text.contains("+ limits: `timeout_seconds` changes from 20 to 30\n"),
        "{text}"
    );
    brig.run(["policy", "diff", "--exit-code", "policy.yaml", "new.yaml"])
        .exits(1);
    brig.run([
        "policy",
        "diff",
        "--exit-code",
        "policy.yaml",
        "policy.yaml",
    ])
    .exits(0)
    .prints("no difference was found\n");
}

#[test]
fn the_schema_is_printed_as_it_is_checked_in() {
    let kept = include_str!("../../../policy/schema/policy.schema.json");
    brig().run(["policy", "schema"]).exits(0).prints(kept);
}

#[test]
fn lines_are_answered_in_their_order() {
    let lines = concat!(
        r#"{"id": "a", "policies": [{"rules": [{"name": "r", "condition": {"field": "x", "operator": "eq", "value": 1}, "action": "deny"}]}], "context": {"x": true}}"#,
        "\n",
        r#"{"id": 2, "policies": [], "context": {}}"#,
        "\n\nnonsense\n",
    );
    let brig = brig();
    let done = brig
        .run_with_input(["policy", "eval", "--jsonl"], lines.as_bytes())
        .exits(0);
    let answers: Vec<Value> = (done.stdout().lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(
        answers[0],
        serde_json::json!({"id": "a", "allowed": false, "matched_rule": "r", "action": "deny", "reason": "Matched rule 'r'"})
    );
    assert_eq!(answers[1]["allowed"], true);
    assert_eq!(
        (&answers[2]["allowed"], &answers[2]["id"]),
        (&Value::Bool(false), &Value::Null)
    );
}

#[test]
fn what_a_policy_denies_does_not_run_and_exits_with_126() {
    let brig = brig();
    let run = |words: &[&str]| {
        let words = ["run", "--policy", "policy.yaml"].iter().chain(words);
        brig.run(words.copied().collect::<Vec<_>>())
    };
    run(&["-c", "print(6 * 7)"]).exits(0).prints("42\n");
    run(&["-c", "import subprocess; print(1)"])
        .exits(126)
        .prints("")
        .complains("error: denied by policy: no other programs (rule `no-subprocess`, policy.rule)")
        .complains(
            "hint: for the operator: this was decided by rule `no-subprocess` in policy.yaml",
        );
    run(&["--", "curl", "x"])
        .exits(126)
        .complains("rule `no-curl`");
    let object = run(&["--json", "--", "curl", "x"]).exits(126).json();
    assert_eq!(object["decision"]["code"], "policy.rule");
    assert_eq!(object["error"]["code"], "policy.denied");
}

#[test]
fn facts_can_be_added_but_not_replaced() {
    let brig = brig();
    let rule =
        "name: no-ticket\n    condition: {field: ticket, operator: lt, value: 5}\n    action: deny";
    brig.write(
        "ticket.yaml",
        &format!("rules:\n  - {rule}\ndefaults: {{action: allow}}\n"),
    );
    let run = |fact: &str| {
        brig.run([
            "run",
            "--policy",
            "ticket.yaml",
            "--fact",
            fact,
            "-c",
            "print(1)",
        ])
    };
    run("ticket=7").exits(0).prints("1\n");
    run("ticket=3").exits(126).complains("rule `no-ticket`");
    run("code=harmless")
        .exits(125)
        .prints("")
        .complains("`code` is a fact that Brig states itself");
}

#[test]
fn a_policy_that_is_not_sound_runs_nothing() {
    let brig = brig();
    brig.write("bad.yaml", "rulse: []\n");
    brig.run(["run", "--policy", "bad.yaml", "-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("unknown key `rulse`")
        .complains("policy `bad.yaml` is invalid; nothing was run");
}

#[test]
fn a_tool_that_nobody_registered_is_refused_unless_tools_are_waived() {
    let brig = brig();
    brig.write(
        "tools.yaml",
        "defaults: {action: allow}\ntool_allowlist: [x]\n",
    );
    brig.run(["run", "--policy", "tools.yaml", "-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("no tool is named `x`")
        .complains("waive the control `tools`");
    let object = brig
        .run([
            "run",
            "--policy",
            "tools.yaml",
            "--waive",
            "tools",
            "--json",
            "-c",
            "print(1)",
        ])
        .exits(0)
        .json();
    assert_eq!(object["waived"], serde_json::json!(["tools"]));
    brig.write(
        "waived.yaml",
        "defaults: {action: allow}\ncommand_denylist: [curl]\nwaive: [command-deny]\n",
    );
    brig.run(["run", "--policy", "waived.yaml", "-c", "print(1)"])
        .exits(0)
        .prints("1\n");
    let text = brig
        .run([
            "policy",
            "explain",
            "waived.yaml",
            "--fact",
            "command=curl x",
        ])
        .exits(0)
        .stdout();
    for part in [
        "denied as a command: `curl` is on the command denylist of policy `unnamed`\n",
        "by the rules alone: allowed by the default",
        "\nwould be allowed if the command lists allowed it\n",
    ] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    brig.run(["run", "--policy", "waived.yaml", "--", "/usr/bin/curl"])
        .exits(126)
        .complains("is on the command denylist of policy `unnamed` (policy.command)");
}
