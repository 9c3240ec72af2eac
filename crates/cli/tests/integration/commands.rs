//! Lists of commands on the command line.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::common::Brig;
use serde_json::{Value, json};

#[test]
fn a_scan_says_what_is_covered_denied_and_left() {
    let brig = Brig::new();
    let root = brig.home().join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    for name in ["curl", "ls"] {
        let path = root.join("usr/bin").join(name);
        fs::write(&path, "text").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink("/usr/bin/curl", root.join("usr/bin/fetch")).unwrap();
    brig.write("deny.yaml", "command_denylist: [fetch, az]\n");
    let words = [
        "commands",
        "scan",
        "--policy",
        "deny.yaml",
        "--rootfs",
        "root",
    ];
    let object = brig
        .run(words.into_iter().chain(["--json"]))
        .exits(0)
        .json();
    let covered = json!([{"path": "/usr/bin/curl", "name": "fetch", "rule": "fetch"}]);
    assert_eq!(object["covered"], covered);
    assert_eq!(object["denied"], json!([{"name": "az", "rule": "az"}]));
    assert_eq!(object["left"], json!(["/usr/bin/ls"]));
    assert_eq!(
        (&object["allowed"], &object["error"]),
        (&Value::Null, &Value::Null)
    );
    let text = brig.run(words).exits(0).stdout();
    assert!(
        text.contains("not installed") && text.ends_with("1 program of PATH can be run\n"),
        "{text}"
    );
    brig.run(["commands", "scan"])
        .exits(125)
        .complains("no policy given");
}

#[test]
fn what_is_observed_is_the_list_that_it_needs() {
    let brig = Brig::new();
    let code = "import os\nos.system('true')\n";
    let seen = brig.run(["run", "--observe", "-c", code]).exits(0).stderr();
    let list = seen.split_once("command_allowlist:\n").unwrap().1;
    for program in ["python3", "sh"] {
        assert!(list.contains(&format!("  - \"{program}\"\n")), "{seen}");
    }
    brig.write(
        "allow.yaml",
        &format!("defaults: {{action: allow}}\ncommand_allowlist:\n{list}"),
    );
    let allowed = ["run", "--policy", "allow.yaml", "--json", "-c"];
    let object = brig.run(allowed.into_iter().chain([code])).exits(0).json();
    let denied = |object: &Value| {
        let commands = object["commands"].as_array().unwrap().iter();
        commands.filter(|one| one["allowed"] == false).count()
    };
    assert_eq!(denied(&object), 0);
    let other = "import os\nprint(os.system('factor 6') >> 8)\n";
    let object = brig.run(allowed.into_iter().chain([other])).exits(0).json();
    assert_eq!(object["result"]["stdout"], "126\n");
    assert_eq!(denied(&object), 1, "one search, one record");
    let commands = object["commands"].as_array().unwrap();
    let one = commands.iter().find(|one| one["allowed"] == false).unwrap();
    assert_eq!(one["path"], "/usr/bin/factor");
}

#[test]
fn a_denied_attempt_is_in_the_result_the_log_and_the_receipt() {
    let brig = Brig::new();
    brig.write(
        "deny.yaml",
        "defaults: {action: allow}\ncommand_denylist: ['@default', git push]\n",
    );
    let code = "import os; os.system('az account list')";
    let object = brig
        .run(["run", "--policy", "deny.yaml", "--json", "-c", code])
        .exits(0)
        .json();
    let commands = object["commands"].as_array().unwrap();
    let denied = commands.iter().find(|one| one["allowed"] == false).unwrap();
    assert_eq!(denied["program"], "az");
    assert_eq!(denied["arguments"], json!(["az", "account", "list"]));
    assert_eq!(denied["caller"], "code.py:1");
    assert_eq!(denied["rule"], "@default");
    let controls = object["enforcement"].as_array().unwrap();
    let strength = |name: &str| {
        let found = controls.iter().find(|one| one["control"] == name).unwrap();
        found["strength"].as_str().unwrap().to_owned()
    };
    assert_eq!(strength("command-deny"), "enforced");
    assert_eq!(strength("command-arguments"), "observed");

    let log = brig.run(["audit", "show", "--json"]).exits(0).stdout();
    let records: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |event: &str| {
        let mut found = records.iter().filter(|one| one["record"]["event"] == event);
        found.next_back().unwrap()["record"].clone()
    };
    assert_eq!(of("receipt")["decision"], "command-denied");
    assert!(
        records
            .iter()
            .any(|one| one["record"]["event"] == "command_attempted"
                && one["record"]["allowed"] == false
                && one["record"]["program"] == "az")
    );
    brig.run(["run", "--policy", "deny.yaml", "--", "git", "push"])
        .exits(126)
        .complains("`git` is on the command denylist of policy `unnamed` (`git push`)");
}

/// A caller without ASLR, as under a debugger, has its programs run with it: they are told apart by their addresses.
#[test]
fn programs_are_told_apart_if_the_caller_has_no_random_addresses() {
    let brig = Brig::new();
    let script = "/bin/echo one; /bin/echo two; /bin/echo six";
    let plain = brig.command(["run", "--observe", "--json", "--", "sh", "-c", script]);
    let mut command = std::process::Command::new("setarch");
    command.arg("-R").arg(plain.get_program());
    command.args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(plain.get_current_dir().unwrap());
    let mut control = std::process::Command::new("setarch");
    control.args(["-R", "cat", "/proc/self/personality"]);
    let personality = control.output().unwrap().stdout;
    assert_eq!(personality, b"00040000\n", "control: without ASLR");
    let done = command.output().unwrap();
    let object: Value = serde_json::from_slice(&done.stdout).unwrap();
    let commands = object["commands"].as_array().unwrap();
    let echoes: Vec<&Value> = (commands.iter())
        .filter(|one| one["path"] == "/usr/bin/echo" || one["path"] == "/bin/echo")
        .collect();
    assert_eq!(echoes.len(), 3, "{object}");
    assert!(
        echoes.iter().all(|one| one["code"] == "command.allowed"),
        "{object}"
    );
}
