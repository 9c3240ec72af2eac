//! What a run was denied is told after it, with what would allow it.

use crate::common::lists::{fetch, sandbox, server};
use crate::common::{Brig, Done};
use serde_json::{Value, json};

const LOOK_UP: &str = "import socket\n\
    try: socket.getaddrinfo('a.example.com', 443)\n\
    except OSError: print('off')\n";

/// The words of a hint that begins with `label`.
#[track_caller]
fn hint(done: &Done, label: &str) -> Vec<String> {
    let stderr = done.stderr();
    let line = stderr.lines().find_map(|line| line.strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no `{label}` in {stderr}"));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn with_the_network_off_a_lookup_is_told() {
    let brig = Brig::new();
    let done = brig.run(["run", "-c", LOOK_UP]).exits(0).prints("off\n");
    assert_eq!(
        done.stderr(),
        "denied: a.example.com: no rule allows it\n\
         hint: to allow it for this run, add: --allow a.example.com\n\
         hint: for every run: brig sandbox allow a.example.com\n"
    );
    brig.run(["run", "-q", "-c", LOOK_UP])
        .exits(0)
        .prints("off\n")
        .stays_silent();
    // The control: without a denial nothing is said.
    brig.run(["run", "-c", "print(1)"]).exits(0).stays_silent();
}

#[test]
fn the_object_has_the_same() {
    let brig = Brig::new();
    let object = brig.run(["run", "--json", "-c", LOOK_UP]).exits(0).json();
    assert_eq!(
        object["denials"],
        json!([{
            "kind": "network",
            "what": "a.example.com",
            "times": 1,
            "code": "network.no-rule",
            "reason": "no rule allows it",
            "layer": null,
            "rule": null,
            "allow_once": "--allow a.example.com",
            "allow_always": "brig sandbox allow a.example.com",
        }])
    );
    let object = brig.run(["run", "--json", "-c", "print(1)"]).json();
    assert_eq!(object["denials"], json!([]));
    let object = brig.run(["run", "--json", "no-such-file"]).json();
    assert_eq!(object["denials"], json!([]));
}

#[test]
fn the_flag_that_is_printed_allows_it() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    let done = brig
        .run(["run", "--allow", "none.example.com", "-c", &code])
        .exits(0)
        .prints("403 network.address\n")
        .complains(&format!(
            "denied: {host}: a loopback address that no rule names"
        ));
    let flags = hint(&done, "hint: to allow it for this run, add: ");
    assert_eq!(flags, ["--allow", &host]);
    let words = ["run"].into_iter().chain(flags.iter().map(String::as_str));
    let done = brig
        .run(words.chain(["-c", &code]))
        .exits(0)
        .prints("hello\n");
    assert!(!done.stderr().contains("denied"), "{}", done.stderr());
    let command = hint(
        &brig.run(["run", "--allow", "none.example.com", "-c", &code]),
        "hint: for every run: brig ",
    );
    brig.run(command).exits(0);
    brig.run(["run", "-c", &code]).exits(0).prints("hello\n");
}

#[test]
fn in_a_session_the_session_is_changed() {
    let brig = Brig::new();
    let port = server();
    let code = fetch(port);
    brig.run(["session", "create", "s", "--allow", "none.example.com"])
        .exits(0);
    let denied = brig
        .run(["session", "exec", "s", "-c", &code])
        .exits(0)
        .prints("403 network.address\n");
    let command = hint(&denied, "hint: to allow it for this session: brig ");
    brig.run(command).exits(0);
    brig.run(["session", "exec", "s", "-c", &code])
        .exits(0)
        .prints("hello\n");
}

#[test]
fn a_denied_command_is_told() {
    let brig = Brig::new();
    brig.write(
        "deny.yaml",
        "name: deny\ndefaults: {action: allow}\ncommand_denylist: [brig-test-tool]\n",
    );
    let code = "import os; os.system('brig-test-tool; brig-test-tool')";
    let done = brig
        .run(["run", "--policy", "deny.yaml", "-c", code])
        .exits(0);
    let stderr = done.stderr();
    assert!(
        stderr.contains("(2 times): `brig-test-tool` is in the policy's `command_denylist`"),
        "{stderr}"
    );
    let object = brig
        .run(["run", "--policy", "deny.yaml", "--json", "-c", code])
        .json();
    assert_eq!(object["denials"][0]["kind"], "command");
    assert_eq!(object["denials"][0]["rule"], "brig-test-tool");
    assert_eq!(object["denials"][0]["allow_once"], Value::Null);
}

#[test]
fn a_hostile_name_cannot_drive_the_terminal_or_flood_it() {
    let brig = Brig::new();
    let code = "import os, socket\n\
        def ask(text):\n    \
            s = socket.create_connection(('127.0.0.1', 3128))\n    \
            s.sendall(text); s.recv(1000); s.close()\n\
        ask(b'CONNECT a\\x9bb\\xc2\\x9b31m:443 HTTP/1.1\\r\\n\\r\\n')\n\
        ask(b'\\x1b]0;title\\x07\\r\\n\\r\\n')\n\
        for at in range(300): ask(b'CONNECT %dx.example.com:443 HTTP/1.1\\r\\n\\r\\n' % at)\n";
    let done = brig
        .run(["run", "--allow", "none.example.com", "-c", code])
        .exits(0);
    let stderr = done.stderr();
    assert!(
        stderr.chars().all(|c| c == '\n' || !c.is_control()),
        "{stderr:?}"
    );
    assert!(stderr.contains("x.example.com:443"), "{stderr}");
    assert!(stderr.lines().count() <= 10, "{stderr}");
    assert!(stderr.len() < 5000, "{stderr}");
    assert!(stderr.contains("brig sandbox suggest"), "{stderr}");
}

#[test]
fn the_summary_begins_on_a_line_of_its_own() {
    let brig = Brig::new();
    let code = format!("{LOOK_UP}import sys; sys.stderr.write('no newline')");
    brig.run(["run", "-c", &code])
        .exits(0)
        .complains("no newline\ndenied: a.example.com");
    let done = brig.run(["run", "-q", "-c", &code]).exits(0);
    assert_eq!(done.stderr(), "no newline", "the program's own bytes");
}

/// The command in the hint of a denial, as words.
fn reproduced(done: &Done) -> Vec<String> {
    let stderr = done.stderr();
    let (_, rest) = stderr.split_once("; `brig ").expect("a command");
    let (line, _) = rest.split_once("` shows why").expect("its end");
    let script = format!("printf '%s\\n' {line}");
    let words = std::process::Command::new("sh")
        .args(["-c", &script])
        .output();
    let words = String::from_utf8(words.unwrap().stdout).unwrap();
    words.lines().map(str::to_owned).collect()
}

#[test]
fn the_hint_of_a_denial_reproduces_it() {
    let brig = Brig::new();
    brig.write(
        "policy.yaml",
        "name: p\ndefaults: {action: allow}\nrules:\n\
         - {name: no-subprocess, condition: {field: code, operator: contains, value: subprocess}, \
         action: deny, message: no other programs}\n\
         - {name: no-ticket, condition: {field: ticket, operator: lt, value: 5}, action: deny}\n\
         command_denylist: [curl]\n",
    );
    brig.write("script.py", "import subprocess\nprint(1)\n");
    brig.run(["session", "create", "s", "--policy", "policy.yaml"])
        .exits(0);
    for words in [
        &[
            "run",
            "--policy",
            "policy.yaml",
            "-c",
            "import subprocess; print('it''s')",
        ][..],
        &["run", "--policy", "policy.yaml", "script.py"],
        &[
            "run",
            "--policy",
            "policy.yaml",
            "--fact",
            "ticket=3",
            "-c",
            "print(1)",
        ],
        &["run", "--policy", "policy.yaml", "--", "curl", "x"],
        &["session", "exec", "s", "-c", "import subprocess"],
    ] {
        let denied = brig.run(words).exits(126);
        let at = if words[0] == "run" { 1 } else { 2 };
        let with = |flag: &str| {
            let mut words: Vec<&str> = words.to_vec();
            words.insert(at, flag);
            brig.run(words)
        };
        let decision = with("--json").json()["decision"].clone();
        let command = reproduced(&denied);
        brig.run(&command).exits(126);
        let mut command: Vec<&str> = command.iter().map(String::as_str).collect();
        command.insert(at, "--json");
        let explained = brig.run(command).exits(126).json();
        match decision["code"].as_str().unwrap() {
            "policy.command" => assert_eq!(explained["command"], decision["reason"]),
            _ => {
                assert_eq!(explained["answer"]["allowed"], false, "{words:?}");
                assert_eq!(explained["answer"]["matched_rule"], decision["rule"]);
            }
        }
    }
    // The control: what is allowed is explained as allowed.
    brig.run([
        "run",
        "--explain",
        "--policy",
        "policy.yaml",
        "-c",
        "print(1)",
    ])
    .exits(0);
    brig.run(["run", "--explain", "-c", "print(1)"])
        .exits(125)
        .complains("no policy given");
}

#[test]
fn a_package_mirror_is_found_and_allowed_in_two_commands() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    brig.run(["run", "--allow", "none.example.com", "-c", &code])
        .exits(0)
        .prints("403 network.address\n");
    let done = sandbox(&brig, &["suggest", "--apply", "--private"]).exits(0);
    assert_eq!(
        done.stdout(),
        format!("  sandbox_allowlist:\n+   - {host}  # a loopback address\n")
    );
    brig.run(["run", "-c", &code]).exits(0).prints("hello\n");
}

/// As behind a company's mirror: a name that only `--allow` allows, with a private address.
#[test]
fn a_mirror_with_a_name_works_after_one_run_and_one_command() {
    let brig = Brig::new();
    let code = fetch(0).replace("127.0.0.1:0", "mirror.corp:8080");
    let beside_mirror = |words: &[&str]| brig.run_with_covers("mirror", words);
    let denied = beside_mirror(&["run", "--allow", "mirror.corp:8080", "-c", &code])
        .exits(0)
        .prints("403 network.address\n");
    let always = hint(&denied, "hint: for every run: brig sandbox allow ");
    assert_eq!(always, ["mirror.corp:8080", "10.0.0.5:8080"]);
    // The control: nothing is allowed yet.
    beside_mirror(&["run", "-c", &code])
        .exits(0)
        .prints("off\n");
    let denied = ["run", "--json", "--allow", "mirror.corp:8080", "-c", &code];
    let object = beside_mirror(&denied).json();
    assert_eq!(
        object["denials"][0]["allow_always"],
        "brig sandbox allow mirror.corp:8080 10.0.0.5:8080"
    );
    let done = beside_mirror(&["sandbox", "suggest", "--apply", "--private"]).exits(0);
    assert_eq!(
        done.stdout(),
        "  sandbox_allowlist:\n+   - mirror.corp:8080\n\
         +   - 10.0.0.5:8080  # a private address that `mirror.corp` resolves to\n"
    );
    let done = beside_mirror(&["run", "-c", &code]).exits(0);
    assert!(done.stdout().contains("six-1.17.0"), "{done:?}");
}

#[test]
fn npm_gives_up_at_once_when_its_registry_is_denied() {
    let brig = Brig::new();
    if !std::path::Path::new("/usr/bin/npm").exists() {
        return brig_testing::skip("npm", "it is not installed");
    }
    for flags in [&[][..], &["--allow", "none.example.com"]] {
        let words = ["run", "--timeout", "60s", "-e", "HOME=/tmp"];
        let npm = ["--", "npm", "view", "left-pad", "version"];
        let done = brig.run([&words[..], flags, &npm].concat());
        // Not 124: its retries would take more than the timeout.
        done.exits(1)
            .complains("denied: registry.npmjs.org")
            .complains("brig sandbox allow registry.npmjs.org");
    }
}
