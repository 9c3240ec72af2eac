//! `brig sandbox`: the lists that people keep, and what comes of them. Servers live on this machine's
//! loopback, and are reached by a rule for their address.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;

use common::{Brig, Done};
use serde_json::{Value, json};

fn sandbox(brig: &Brig, words: &[&str]) -> Done {
    brig.run(["sandbox"].iter().chain(words))
}

fn path(brig: &Brig) -> PathBuf {
    brig.home().join("config/brig/config.yaml")
}

fn write_config(brig: &Brig, text: &str) {
    fs::create_dir_all(path(brig).parent().unwrap()).unwrap();
    fs::write(path(brig), text).unwrap();
}

fn text(brig: &Brig) -> String {
    fs::read_to_string(path(brig)).unwrap()
}

fn records(brig: &Brig, event: &str) -> Vec<Value> {
    let lines = brig.run(["audit", "show", "--json", "--event", event]);
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["record"].clone();
    let records = lines.stdout().lines().map(line).collect::<Vec<_>>();
    // No log at all is no record.
    records
        .into_iter()
        .filter(|record| !record.is_null())
        .collect()
}

/// Answers whoever connects.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            );
        }
    });
    port
}

/// Prints what a server says, or the code and the reason of a refusal.
fn fetch(port: u16) -> String {
    format!(
        "import os, urllib.request, urllib.error\n\
         for name in 'no_proxy', 'NO_PROXY': os.environ.pop(name, None)\n\
         try: print(urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=20).read().decode())\n\
         except urllib.error.HTTPError as e: print(e.code, e.headers['x-brig-reason'])\n\
         except OSError as e: print('off')\n"
    )
}

#[test]
fn hosts_are_allowed_listed_and_taken_back() {
    let brig = Brig::new();
    sandbox(&brig, &["list"])
        .exits(0)
        .prints("")
        .complains("hint: brig sandbox allow HOST");
    sandbox(
        &brig,
        &["allow", "b.example.com", "A.example.com.", "a.example.com"],
    )
    .exits(0)
    .prints("2 hosts allowed\n  + b.example.com\n  + a.example.com\n")
    .stays_silent();
    sandbox(&brig, &["allow", "a.example.com", "*.c.example.com:8443"])
        .exits(0)
        .prints("1 host allowed\n  + *.c.example.com:8443\n  = a.example.com (already allowed)\n");
    sandbox(&brig, &["allow", "a.example.com"])
        .exits(0)
        .prints("  = a.example.com (already allowed)\n");
    sandbox(&brig, &["list"])
        .exits(0)
        .prints("allowed: 3\n  b.example.com\n  a.example.com\n  *.c.example.com:8443\n");
    let list = sandbox(&brig, &["list", "--json"]).exits(0).json();
    assert_eq!(
        list["allow"],
        json!(["b.example.com", "a.example.com", "*.c.example.com:8443"])
    );
    assert_eq!(list["path"], json!(path(&brig)));
    sandbox(&brig, &["deny", "b.example.com"])
        .exits(0)
        .prints("1 host no longer allowed\n  - b.example.com\n");
    let before = text(&brig);
    sandbox(&brig, &["deny", "b.example.com", "none.example.com"])
        .exits(0)
        .prints("  = b.example.com (not on the allowlist)\n  = none.example.com (not on the allowlist)\n");
    assert_eq!(text(&brig), before);
    let object = sandbox(&brig, &["deny", "a.example.com", "x.example.com", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        object,
        json!({ "removed": ["a.example.com"], "absent": ["x.example.com"] })
    );
}

#[test]
fn a_batch_with_one_bad_host_changes_nothing() {
    let brig = Brig::new();
    for wrong in [
        "a.org,b.org",
        "a b",
        "a\tb",
        "a\nb",
        "https://a.org",
        "*",
        "**",
        "*.com",
        "a.org:0",
        "",
    ] {
        for command in ["allow", "deny", "block", "unblock"] {
            sandbox(&brig, &[command, "good.example.com", wrong])
                .exits(125)
                .prints("");
        }
    }
    assert!(!path(&brig).exists());
    assert_eq!(records(&brig, "allowlist_changed"), Vec::<Value>::new());
    sandbox(&brig, &["allow", "good.example.com"]).exits(0);
    assert!(path(&brig).exists(), "control");
}

#[test]
fn every_change_of_the_lists_is_on_record() {
    let brig = Brig::new();
    sandbox(&brig, &["allow", "a.example.com", "b.example.com"]).exits(0);
    sandbox(&brig, &["allow", "a.example.com"]).exits(0);
    sandbox(&brig, &["deny", "a.example.com", "c.example.com"]).exits(0);
    sandbox(&brig, &["block", "d.example.com"]).exits(0);
    sandbox(&brig, &["unblock", "d.example.com"]).exits(0);
    let changes: Vec<Value> = records(&brig, "allowlist_changed")
        .iter()
        .map(|record| json!([record["layer"], record["added"], record["removed"]]))
        .collect();
    assert_eq!(
        changes,
        [
            json!(["user", ["a.example.com", "b.example.com"], []]),
            json!(["user", [], ["a.example.com"]]),
            json!(["user-block", ["d.example.com"], []]),
            json!(["user-block", [], ["d.example.com"]]),
        ]
    );
}

#[test]
fn a_change_that_cannot_be_recorded_is_not_made() {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("state/brig")).unwrap();
    fs::write(brig.home().join("state/brig/audit"), "no folder").unwrap();
    sandbox(&brig, &["allow", "a.example.com"])
        .exits(125)
        .prints("");
    assert!(!path(&brig).exists());
    fs::remove_file(brig.home().join("state/brig/audit")).unwrap();
    sandbox(&brig, &["allow", "a.example.com"]).exits(0);
}

#[test]
fn eight_programs_at_a_time_lose_nothing() {
    let brig = Brig::new();
    write_config(&brig, "# kept\nmine: 1\n");
    let hosts: Vec<String> = (0..8).map(|n| format!("h{n}.example.com")).collect();
    let running: Vec<_> = hosts
        .iter()
        .map(|host| {
            let mut command = brig.command(["sandbox", "allow", host]);
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let done = sandbox(&brig, &["list", "--json"]).exits(0);
    let mut listed: Vec<String> = serde_json::from_value(done.json()["allow"].clone()).unwrap();
    listed.sort();
    assert_eq!(listed, hosts);
    assert!(text(&brig).starts_with("# kept\nmine: 1\n"));
    assert_eq!(records(&brig, "allowlist_changed").len(), 8);
}

#[test]
fn hosts_stand_only_in_the_configuration_and_the_evidence() {
    let brig = Brig::new();
    let name = "corp-proxy.secret.example.com";
    sandbox(&brig, &["allow", name]).exits(0);
    sandbox(&brig, &["check", name]).exits(0);
    sandbox(&brig, &["allow", "https://a.example.com/?token=hush-hush"]).exits(125);
    let mut holding = Vec::new();
    let mut folders = vec![brig.home().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let holds = |part: &str| {
                bytes
                    .windows(part.len())
                    .any(|window| window == part.as_bytes())
            };
            assert!(!holds("hush-hush"), "{}", path.display());
            if holds(name) {
                holding.push(path.strip_prefix(brig.home()).unwrap().to_owned());
            }
        }
    }
    assert_eq!(holding.len(), 2, "{holding:?}");
    assert!(holding.iter().any(|path| path.ends_with("config.yaml")));
    assert!(
        holding
            .iter()
            .any(|path| path.starts_with("state/brig/audit"))
    );
}

/// There is no telemetry, and nothing is looked up that is only talked about.
#[test]
fn no_command_about_hosts_opens_a_socket() {
    let brig = Brig::new();
    let traced = |command: &std::process::Command| {
        let file = brig.home().join("trace");
        let done = std::process::Command::new("strace")
            .args([
                "-f",
                "-qq",
                "-e",
                "trace=socket,connect,sendto,sendmsg",
                "-o",
            ])
            .arg(&file)
            .arg(command.get_program())
            .args(command.get_args())
            .envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(brig.home())
            .output();
        let calls = fs::read_to_string(&file).unwrap_or_default();
        (done.is_ok_and(|done| done.status.success()), calls)
    };
    let mut control = std::process::Command::new("/usr/bin/python3");
    control.args(["-c", "import socket; socket.socket()"]);
    let (worked, calls) = traced(&control);
    if !worked {
        return brig_testing::skip("hosts without a socket", "strace can't be used here");
    }
    assert!(calls.contains("socket("), "control: {calls}");
    for words in [
        &["allow", "corp.example.com"][..],
        &["block", "bad.example.com"],
        &["list"],
        &["check", "corp.example.com"],
        &["deny", "corp.example.com"],
    ] {
        let (worked, calls) = traced(&brig.command([&["sandbox"], words].concat()));
        assert!(worked, "{words:?}");
        assert_eq!(calls, "", "{words:?}");
    }
}

#[test]
fn a_check_names_the_rule_the_layer_and_the_reason() {
    let brig = Brig::new();
    brig.write(
        "policy.yaml",
        "defaults: {action: allow}\nnetwork_allowlist: [policy.example.com]\n",
    );
    brig.write(
        "open.yaml",
        "defaults: {action: allow, network_default: allow}\n",
    );
    brig.write(
        "agent.yaml",
        "name: a\ncommand: [x]\npolicy: policy.yaml\nruntime: {network_allowlist: [agent.example.com, x.bad.example.com]}\n",
    );
    sandbox(&brig, &["allow", "*.user.example.com"]).exits(0);
    sandbox(&brig, &["block", "*.bad.example.com"]).exits(0);
    let check = |words: &[&str]| {
        let done = sandbox(&brig, &[&["check", "--json"], words].concat());
        let object = done.json();
        let allowed = object["allowed"].as_bool().unwrap();
        assert_eq!(done.0.status.code(), Some(i32::from(!allowed)));
        json!([allowed, object["code"], object["rule"], object["layer"]])
    };
    let agent = ["--for", "agent.yaml"];
    let table: [(&[&str], Value); 10] = [
        (
            &["a.user.example.com"],
            json!([true, "network.rule", "*.user.example.com", "user"]),
        ),
        (
            &["user.example.com"],
            json!([false, "network.no-rule", null, null]),
        ),
        (
            &["a.user.example.com:22"],
            json!([false, "network.port", "*.user.example.com", "user"]),
        ),
        (
            &[agent[0], agent[1], "agent.example.com"],
            json!([true, "network.rule", "agent.example.com", "agent file"]),
        ),
        (
            &[agent[0], agent[1], "policy.example.com"],
            json!([true, "network.rule", "policy.example.com", "policy"]),
        ),
        (
            &[agent[0], agent[1], "x.bad.example.com"],
            json!([false, "network.blocked", "*.bad.example.com", "user"]),
        ),
        (
            &["--policy", "policy.yaml", "policy.example.com:80"],
            json!([true, "network.rule", "policy.example.com", "policy"]),
        ),
        (
            &["--policy", "open.yaml", "any.example.com"],
            json!([true, "network.default", null, null]),
        ),
        (
            &["--policy", "open.yaml", "10.0.0.1"],
            json!([false, "network.address", null, null]),
        ),
        (
            &["--allow", "run.example.com:9", "run.example.com:9"],
            json!([true, "network.rule", "run.example.com:9", "run"]),
        ),
    ];
    for (words, wanted) in table {
        assert_eq!(check(words), wanted, "{words:?}");
    }
    sandbox(&brig, &["check", "no.example.com:8443"])
        .exits(1)
        .prints("`no.example.com:8443` is denied: no rule allows it; `brig sandbox allow no.example.com:8443` would allow it\n");
    sandbox(&brig, &["check", "*.example.com"]).exits(125);
    sandbox(&brig, &["check", "a.example.com:*"]).exits(125);
}

#[test]
fn what_is_allowed_blocked_and_taken_back_holds_in_the_next_run() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    let run = |words: &[&str]| {
        let done = brig.run([&["run"], words, &["-c", &code]].concat());
        (done.stdout().trim().to_owned(), done.stderr())
    };
    assert_eq!(
        run(&[]),
        ("off".into(), String::new()),
        "no list, no network"
    );
    let (out, said) = run(&["--allow", &host]);
    assert_eq!(out, "hello");
    assert_eq!(said, format!("network: --allow allows 1 host: {host}\n"));
    let (out, _) = run(&["--allow", "other.example.com"]);
    assert!(out.starts_with("403 network."), "{out}");

    sandbox(&brig, &["allow", &host]).exits(0);
    let (out, said) = run(&["--allow", "other.example.com"]);
    assert_eq!(out, "hello");
    assert_eq!(
        said,
        format!(
            "network: user config allows 1 host: {host}\nnetwork: --allow allows 1 host: other.example.com\n"
        )
    );
    sandbox(&brig, &["block", "127.0.0.0/8"]).exits(0);
    let (out, said) = run(&["--allow", &host]);
    assert_eq!(out, "403 network.blocked");
    assert!(
        said.ends_with("network: user config blocks 1 host: 127.0.0.0/8\n"),
        "{said}"
    );
    sandbox(&brig, &["allow", &host])
        .exits(0)
        .complains("stays closed: `127.0.0.0/8` is blocked");
    sandbox(&brig, &["unblock", "127.0.0.0/8"]).exits(0);
    assert_eq!(run(&[]).0, "hello");
    sandbox(&brig, &["deny", &host]).exits(0);
    assert_eq!(run(&[]).0, "off");
}

#[test]
fn a_session_follows_the_lists_of_its_user() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    sandbox(&brig, &["allow", &host]).exits(0);
    brig.run(["session", "create", "s"])
        .exits(0)
        .complains(&format!("network: user config allows 1 host: {host}"));
    brig.run(["session", "create", "t", "--allow", &host])
        .exits(0);
    let exec = |session: &str| {
        let done = brig.run(["session", "exec", session, "-c", &code]).exits(0);
        done.stdout().trim().to_owned()
    };
    assert_eq!((exec("s"), exec("t")), ("hello".into(), "hello".into()));
    let says = format!("network: user config allows 1 host: {host}\n");
    brig.run(["session", "exec", "s", "--", "true"])
        .complains(&says);
    let both = format!("{says}network: --allow allows 1 host: {host}\n");
    let change = format!("network: session blocks 1 host: {host}\n");
    brig.run(["session", "network", "deny", "t", &host])
        .exits(0);
    let told = brig.run(["session", "exec", "t", "--", "true"]).stderr();
    let mut told: Vec<&str> = told.lines().collect();
    told.sort_unstable();
    let told_all = both + &change;
    let mut all: Vec<&str> = told_all.lines().collect();
    all.sort_unstable();
    assert_eq!(told, all, "a line for each layer");
    brig.run(["session", "network", "allow", "t", &host])
        .exits(0);
    sandbox(&brig, &["deny", &host]).exits(0);
    assert_eq!(
        exec("s"),
        "off",
        "what was taken back is taken back here too"
    );
    brig.run(["session", "exec", "s", "--", "true"])
        .stays_silent();
    assert_eq!(
        exec("t"),
        "hello",
        "what the session was given itself stays"
    );
    sandbox(&brig, &["block", &host]).exits(0);
    assert_eq!(exec("t"), "403 network.blocked");
    sandbox(&brig, &["unblock", &host]).exits(0);
    sandbox(&brig, &["allow", &host]).exits(0);
    assert_eq!(exec("s"), "hello");
}

#[test]
fn an_open_policy_is_honoured_and_loudly_shown() {
    let brig = Brig::new();
    let port = server();
    brig.write(
        "open.yaml",
        "defaults: {action: allow, network_default: allow}\n",
    );
    let code = fetch(port);
    let done = brig
        .run(["run", "--policy", "open.yaml", "-c", &code])
        .exits(0);
    assert!(
        done.stderr()
            .contains("warning: NETWORK OPEN: the policy says `network_default: allow`")
    );
    assert_eq!(
        done.stdout(),
        "403 network.address\n",
        "private addresses stay closed"
    );
    let host = format!("127.0.0.1:{port}");
    brig.run([
        "run",
        "--policy",
        "open.yaml",
        "--allow",
        &host,
        "-c",
        &code,
    ])
    .exits(0)
    .prints("hello\n");
}

#[test]
fn a_run_is_refused_if_the_configuration_cannot_be_read() {
    let brig = Brig::new();
    for (text, part) in [
        (
            "sandbox_allowlist: [a.example.com\n",
            "config.yaml:2:1: sandbox_allowlist[1]: not YAML",
        ),
        (
            "# mine\nsandbox_allowlist:\n  - good.example.com\n  - \"a.org, b.org\"\n",
            "config.yaml:4:5: sandbox_allowlist[1]: `a.org, b.org` is no host: it is several in one [input.host]",
        ),
        (
            "sandbox_blocklists: [a.example.com]\n",
            "did you mean `sandbox_blocklist`?",
        ),
    ] {
        write_config(&brig, text);
        for words in [
            &["run", "-c", "print(1)"][..],
            &["run", "--allow", "x.example.com", "-c", "print(1)"],
            &["session", "create", "s"],
            &["sandbox", "list"],
            &["sandbox", "allow", "x.example.com"],
        ] {
            brig.run(words).exits(125).prints("").complains(part);
        }
        assert_eq!(self::text(&brig), text);
    }
    fs::remove_file(path(&brig)).unwrap();
    fs::create_dir(path(&brig)).unwrap();
    brig.run(["run", "-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("error: cannot read `")
        .complains("is a directory");
    fs::remove_dir(path(&brig)).unwrap();
    brig.run(["run", "-c", "print(1)"]).exits(0).prints("1\n");
    write_config(&brig, "colour: blue\n");
    brig.run(["run", "-c", "print(1)"])
        .exits(0)
        .prints("1\n")
        .complains("unknown key `colour`; it is kept, and means nothing");
}

#[test]
fn no_sandbox_sees_the_configuration() {
    let brig = Brig::new();
    sandbox(&brig, &["allow", "a.example.com"]).exits(0);
    let folder = brig.home().join("config");
    for place in [folder.clone(), folder.join("brig"), path(&brig)] {
        let mount = format!("{}:/x:rw", place.display());
        brig.run(["run", "--mount", &mount, "-c", "print(1)"])
            .exits(125)
            .complains("is refused");
    }
    let other = brig.home().join("other");
    fs::create_dir(&other).unwrap();
    let mount = format!("{}:/x:rw", other.display());
    brig.run(["run", "--mount", &mount, "-c", "print(1)"])
        .exits(0);
}

#[test]
fn what_was_denied_is_proposed_and_applied_only_on_request() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    sandbox(&brig, &["suggest"])
        .exits(0)
        .prints("")
        .complains("nothing was denied");
    let names = "import urllib.request\n\
        for url in ['http://b.example.com/', 'https://b.example.com/', 'http://a.example.com:8080/']:\n    \
            try: urllib.request.urlopen(url, timeout=20)\n    \
            except OSError: pass\n";
    brig.run(["session", "create", "s", "--allow", &host])
        .exits(0);
    brig.run(["session", "exec", "s", "-c", names]).exits(0);
    brig.run(["run", "--allow", "none.example.com", "-c", &code])
        .exits(0);
    sandbox(&brig, &["suggest"])
        .exits(0)
        .prints("")
        .complains(&format!("not proposed: {host} (network.address)"));
    let proposal = sandbox(&brig, &["suggest", "s"]).exits(0);
    assert_eq!(
        proposal.stdout(),
        "  sandbox_allowlist:\n+   - a.example.com:8080\n+   - b.example.com\n"
    );
    proposal.complains("hint: brig sandbox suggest s --apply");
    assert!(!path(&brig).exists(), "only shown");
    let object = sandbox(&brig, &["suggest", "s", "--apply", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        object["add"],
        json!(["a.example.com:8080", "b.example.com"])
    );
    assert_eq!(object["applied"], json!(true));
    sandbox(&brig, &["suggest", "s"])
        .exits(0)
        .prints("")
        .complains("nothing to add");
    assert_eq!(records(&brig, "allowlist_changed").len(), 1);
}

#[test]
fn what_was_never_used_is_told() {
    let brig = Brig::new();
    let port = server();
    let host = format!("127.0.0.1:{port}");
    sandbox(&brig, &["allow", &host, "idle.example.com"]).exits(0);
    let object = sandbox(&brig, &["used", "--json"]).exits(0).json();
    assert_eq!(object["unused"], json!([host, "idle.example.com"]));
    brig.run(["run", "-c", &fetch(port)])
        .exits(0)
        .prints("hello\n");
    let object = sandbox(&brig, &["used", "--json"]).exits(0).json();
    assert_eq!(object["unused"], json!(["idle.example.com"]));
    assert!(object["entries"][0]["uses"].as_u64() > Some(0), "{object}");
    assert_eq!(
        object["entries"][1],
        json!({ "rule": "idle.example.com", "uses": 0, "last": null })
    );
    sandbox(&brig, &["used"])
        .exits(0)
        .complains("hint: brig sandbox deny 'idle.example.com'");
}
