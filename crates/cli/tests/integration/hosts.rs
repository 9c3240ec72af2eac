//! `brig sandbox`: the lists that people keep, and what is told of them.

use std::fs;
use std::process::Stdio;

use crate::common::Brig;
use crate::common::lists::{path, records, sandbox, text, write_config};
use serde_json::{Value, json};

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

/// Wherever a person opens one: a list, a flag, a policy.
#[test]
fn addresses_of_this_machine_and_its_cloud_have_a_warning() {
    let brig = Brig::new();
    let metadata = "allows a cloud metadata address";
    brig.run(["sandbox", "allow", "169.254.0.0/16"])
        .exits(0)
        .complains(metadata);
    brig.run(["sandbox", "deny", "169.254.0.0/16"]).exits(0);
    brig.run(["run", "--allow", "169.254.169.254", "--", "true"])
        .exits(0)
        .complains(metadata);
    brig.run(["run", "--allow", "127.0.0.1:*", "--", "true"])
        .exits(0)
        .complains("services of this machine itself");
    brig.write("p.yaml", "network_allowlist: [\"[fd00:ec2::254]:80\"]\n");
    brig.run(["policy", "check", "p.yaml"])
        .exits(0)
        .complains("[policy.private-address]");
    // Control: most hosts have none.
    brig.write("p.yaml", "network_allowlist: [example.com, 10.0.0.0/8]\n");
    let done = brig.run(["policy", "check", "p.yaml"]).exits(0);
    assert!(!done.stderr().contains("warning"), "{}", done.stderr());
}
