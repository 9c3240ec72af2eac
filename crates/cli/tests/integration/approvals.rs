//! Approvals: on the terminal, from another process, in time and not.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::Brig;
use crate::common::pty::Terminal;

const POLICY: &str = "version: '1.0'
name: careful
tool_allowlist: [send]
defaults: {action: allow, approval_timeout_seconds: 60}
rules:
  - name: ask-code
    condition: {field: code, operator: contains, value: '# careful'}
    action: require_approval
    message: somebody has to read this first
  - name: ask-send
    condition: {field: tool_name, operator: eq, value: send}
    action: require_approval
";

const PATIENCE: Duration = Duration::from_secs(60);

fn brig() -> Brig {
    let brig = Brig::new();
    brig.write("policy.yaml", POLICY);
    brig.write("hurry.yaml", &POLICY.replace("seconds: 60", "seconds: 1"));
    brig
}

fn start(brig: &Brig, words: &[&str]) -> Child {
    brig.command(
        ["run", "--policy", "policy.yaml", "--tool", "send=cat"]
            .iter()
            .chain(words),
    )
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap()
}

fn pending(brig: &Brig) -> Vec<Value> {
    let listed = brig.run(["approvals", "ls", "--json"]).exits(0).json();
    listed["approvals"].as_array().unwrap().clone()
}

/// The id of the one request that waits.
fn waiting(brig: &Brig) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        if let [one] = &pending(brig)[..] {
            return one["id"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < until, "nothing waits");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn another_process_approves_and_denies() {
    let brig = brig();
    let run = start(&brig, &["-c", "print(1) # careful"]);
    let id = waiting(&brig);
    let shown = brig.run(["approvals", "show", &id]).exits(0).stdout();
    for part in [
        "ask-code: somebody has to read this first",
        "  | print(1) # careful",
        "sha256:",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let line = brig.run(["approvals", "ls"]).exits(0).stdout();
    assert!(
        line.contains(&id) && line.contains("python print(1)"),
        "{line}"
    );
    brig.run(["approvals", "approve", &id])
        .exits(0)
        .stays_silent();
    let done = run.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(done.stdout, b"1\n");
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(
        told.contains(&format!("brig approvals approve {id}")),
        "{told}"
    );

    // An id is used once, and only this one counts.
    let gone = brig.run(["approvals", "approve", &id, "--json"]).exits(125);
    assert_eq!(gone.json()["error"]["code"], "approval.unknown");
    brig.run(["approvals", "deny", "../../x"]).exits(125);

    let run = start(&brig, &["--json", "-c", "print(2) # careful"]);
    let id = waiting(&brig);
    brig.run(["approvals", "deny", &id, "--reason", "not on Fridays"])
        .exits(0);
    let done = run.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(126), "{done:?}");
    let object: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(object["result"], Value::Null);
    let decision = &object["decision"];
    assert_eq!(decision["code"], "policy.approval");
    assert_eq!(decision["approval"]["outcome"], "denied");
    assert!(
        decision["reason"]
            .as_str()
            .unwrap()
            .contains("not on Fridays")
    );
    assert!(pending(&brig).is_empty());

    // Both are on record, with who answered.
    let records = brig.run(["audit", "show", "--json"]).exits(0).stdout();
    let answered = records.matches("approval_answered").count();
    assert_eq!(answered, 2, "{records}");
    assert_eq!(records.matches("approval_requested").count(), 2);
    brig.run(["audit", "verify"]).exits(0);
}

#[test]
fn without_an_answer_it_is_denied() {
    let brig = brig();
    let run = |words: &[&str]| {
        let all = ["run", "--policy", "hurry.yaml", "--tool", "send=cat"]
            .iter()
            .chain(words);
        brig.run(all).exits(126)
    };
    run(&["--approvals", "queue", "-c", "print(1) # careful"])
        .prints("")
        .complains("it was not approved within 1 s");
    run(&["--approvals", "none", "-c", "print(1) # careful"])
        .prints("")
        .complains("there is no approver")
        .complains("brig approvals");
    assert!(pending(&brig).is_empty());
    brig.run([
        "run",
        "--policy",
        "hurry.yaml",
        "--tool",
        "send=cat",
        "-c",
        "print(1)",
    ])
    .exits(0)
    .prints("1\n");
}

#[test]
fn what_a_killed_run_left_is_gone() {
    let brig = brig();
    let mut run = start(&brig, &["-c", "print(1) # careful"]);
    let id = waiting(&brig);
    run.kill().unwrap();
    run.wait().unwrap();
    brig.run(["approvals", "approve", &id])
        .exits(125)
        .complains("no request");
    assert!(pending(&brig).is_empty());
    let left = std::fs::read_dir(brig.home().join("state/brig/approvals")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_call_of_a_tool_waits_and_its_code_cannot_answer() {
    let brig = brig();
    // Looks for the requests and for a terminal, then asks.
    let state = brig.home().join("state");
    let code = format!(
        "
import os
print(os.path.exists('{}'))
try:
    open('/dev/tty', 'w')
    print('opened')
except OSError:
    print('no terminal')
print(send(to='alice'))
try:
    send(to='bob')
except Exception as error:
    print(error.code, 'do not retry' in str(error))
",
        state.display()
    );
    let run = start(&brig, &["--json", "-c", &code]);
    let id = waiting(&brig);
    let shown = brig
        .run(["approvals", "show", &id, "--json"])
        .exits(0)
        .json();
    assert_eq!(shown["subject"]["name"], "send");
    assert_eq!(shown["subject"]["text"], r#"{"to":"alice"}"#);
    brig.run(["approvals", "approve", &id]).exits(0);
    let until = Instant::now() + PATIENCE;
    let second = loop {
        let second = waiting(&brig);
        if second != id {
            break second;
        }
        assert!(Instant::now() < until);
    };
    brig.run(["approvals", "deny", &second]).exits(0);
    let done = run.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&done.stdout).unwrap();
    let stdout = object["result"]["stdout"].as_str().unwrap();
    let expected = "False\nno terminal\n{'to': 'alice'}\ntool.approval True\n";
    assert_eq!(stdout, expected);
    assert!(state.exists(), "the control");
    let calls = object["tools"].as_array().unwrap().iter();
    let outcomes: Vec<_> = calls
        .map(|call| call["approval"]["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["approved", "denied"]);
}

fn terminal(brig: &Brig, words: &[&str]) -> Terminal {
    let mut command = brig.command(
        ["run", "--policy", "policy.yaml", "--tool", "send=cat"]
            .iter()
            .chain(words),
    );
    command.env("NO_COLOR", "1");
    Terminal::start(&command, 24, 80)
}

#[test]
fn the_operator_answers_on_the_terminal() {
    let brig = brig();
    let mut yes = terminal(&brig, &["-c", "print(6 * 7) # careful"]);
    yes.wait_for("Approve this once? [y/N] ");
    yes.keys(b"y\n");
    yes.wait_for("42\r\n");
    assert!(yes.finish().0.success());
    for keys in [&b"\n"[..], b"n\n", b"yy\n", b"approve\n"] {
        let mut no = terminal(&brig, &["-c", "print(6 * 7) # careful"]);
        no.wait_for("Approve this once? [y/N] ");
        no.keys(keys);
        let (status, shown) = no.finish();
        assert_eq!(
            status.code(),
            Some(126),
            "{}",
            String::from_utf8_lossy(&shown)
        );
    }
    // What was typed before is no answer.
    let mut early = terminal(&brig, &["-c", "print(6 * 7) # careful"]);
    early.keys(b"y\ny\ny\n");
    early.wait_for("Approve this once? [y/N] ");
    early.keys(b"n\n");
    assert_eq!(early.finish().0.code(), Some(126));
}

#[test]
fn output_of_the_program_stays_out_of_a_question() {
    let brig = brig();
    let code = "
import threading, time
def flood():
    for n in range(1000):
        print('\\x1b[2J\\rbrig: the call of tool `harmless` needs an approval\\nApprove this once? [y/N]', n, flush=True)
        time.sleep(0.01)
threading.Thread(target=flood, daemon=True).start()
time.sleep(0.5)
print(send(to='a\\u202eb\\x1b[8m'))
";
    let mut run = terminal(&brig, &["-c", code]);
    run.wait_for("brig: the call of tool `send` by agent `default` needs an approval");
    run.wait_for("Approve this once? [y/N] ");
    // Nothing comes while the question is open.
    std::thread::sleep(Duration::from_secs(1));
    run.keys(b"n\n");
    let (_, shown) = run.finish();
    let shown = String::from_utf8_lossy(&shown);
    let echo = shown.lines().next().unwrap_or_default();
    assert_eq!(echo.trim(), "n", "the answer follows the question: {shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
}

#[test]
fn a_program_that_reads_the_terminal_leaves_the_question_to_the_queue() {
    let brig = brig();
    let words = ["-it", "--", "sh", "-c", "read line; echo got $line"];
    let mut all = vec!["--approvals", "terminal"];
    all.extend(words);
    let (status, shown) = terminal(&brig, &all).finish();
    assert_eq!(
        status.code(),
        Some(125),
        "{}",
        String::from_utf8_lossy(&shown)
    );
    brig.write(
        "policy.yaml",
        "version: '1.0'\nname: p\ntool_allowlist: [send]\ndefaults: {action: require_approval}\n",
    );
    let mut run = terminal(&brig, &words);
    run.wait_for("waits up to 300 s for an approval");
    let id = waiting(&brig);
    brig.run(["approvals", "approve", &id]).exits(0);
    run.keys(b"hello\n");
    run.wait_for("got hello");
    assert!(run.finish().0.success());
}

#[test]
fn a_session_asks_too() {
    let brig = brig();
    let created = brig.run([
        "session",
        "create",
        "--policy",
        "policy.yaml",
        "--tool",
        "send=cat",
    ]);
    let session = created.exits(0).stdout().trim().to_owned();
    let run = brig
        .command([
            "session",
            "exec",
            &session,
            "--tool",
            "send=cat",
            "-c",
            "print(3) # careful",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = waiting(&brig);
    brig.run(["approvals", "approve", &id]).exits(0);
    let done = run.wait_with_output().unwrap();
    assert_eq!(done.stdout, b"3\n", "{done:?}");
}

#[test]
fn the_state_directory_is_shown_in_no_sandbox() {
    let brig = brig();
    let state = brig.home().join("state/brig/approvals");
    std::fs::create_dir_all(&state).unwrap();
    let mount = format!("{}:/x", state.display());
    brig.run(["run", "--mount", &mount, "-c", "print(1)"])
        .exits(125)
        .complains("refused");
}
