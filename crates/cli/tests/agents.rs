//! `brig agent run` and `brig alias`: what is run, in what, and who said so.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;

use common::{Brig, Done};
use serde_json::{Value, json};

/// Says whether it is in a sandbox, and what it was called with.
const COMMAND: &str =
    "[sh, -c, 'test \"$HOME\" = \"$OUTSIDE\" && echo outside \"$@\" || echo inside \"$@\"', sh]";

fn brig(runtime: &str) -> Brig {
    let brig = Brig::new();
    brig.write(
        "agent.yaml",
        &format!("name: teller\ncommand: {COMMAND}\nruntime: {{{runtime}}}\n"),
    );
    brig
}

fn run(brig: &Brig, words: &[&str]) -> Done {
    let words = ["agent", "run"].iter().chain(words);
    let mut command = brig.command(words);
    // Folders that this user may not look into would make "not found" something else.
    command
        .env("OUTSIDE", brig.home())
        .env("PATH", "/usr/bin:/bin");
    Done(command.output().unwrap())
}

fn write_config(brig: &Brig, text: &str) {
    fs::create_dir_all(brig.home().join("config/brig")).unwrap();
    fs::write(brig.home().join("config/brig/config.yaml"), text).unwrap();
}

fn unsandboxed(brig: &Brig) -> Vec<Value> {
    let lines = brig.run(["audit", "show", "--json", "--event", "unsandboxed"]);
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["record"].clone();
    lines.stdout().lines().map(line).collect()
}

#[test]
fn whoever_is_nearest_decides_whether_there_is_a_sandbox() {
    let table: [(&str, &str, &str, &[&str], &str); 8] = [
        // agent file, user, alias, flag, and where it runs
        ("", "", "", &[], "inside"),
        ("", "sandbox: false\n", "", &[], "outside"),
        ("sandbox: true", "sandbox: false\n", "", &[], "inside"),
        ("sandbox: false", "sandbox: true\n", "", &[], "outside"),
        ("sandbox: true", "", "--sandbox=false", &[], "outside"),
        ("sandbox: false", "", "--sandbox", &[], "inside"),
        (
            "sandbox: true",
            "",
            "--sandbox=true",
            &["--sandbox=false"],
            "outside",
        ),
        (
            "sandbox: false",
            "sandbox: false\n",
            "--sandbox=false",
            &["--sandbox"],
            "inside",
        ),
    ];
    for (agent, user, alias, flag, place) in table {
        let brig = brig(agent);
        write_config(&brig, user);
        let mut reference = "./agent.yaml";
        if !alias.is_empty() {
            brig.run(["alias", "add", "t", "agent.yaml", alias])
                .exits(0);
            reference = "t";
        }
        let done = run(&brig, &[flag, &[reference, "x"]].concat());
        let done = done.exits(0).prints(&format!("{place} x\n"));
        let what = format!("{agent} {user} {alias} {flag:?}");
        let warned = done
            .stderr()
            .contains("warning: NO SANDBOX: `sh` runs with all that you may do");
        assert_eq!(warned, place == "outside", "{what}: {}", done.stderr());
        assert_eq!(unsandboxed(&brig).len(), usize::from(warned), "{what}");
    }
}

/// Only the reference is looked up: a file, an alias or a flag behind it is a word like any other.
#[test]
fn what_follows_the_reference_is_the_agents_own() {
    let brig = brig("sandbox: true");
    brig.write("other.yaml", "no agent: [\n");
    brig.run(["alias", "add", "t", "agent.yaml", "--sandbox=false"])
        .exits(0);
    let words = ["./agent.yaml", "--", "other.yaml", "t", "--sandbox=false"];
    run(&brig, &words)
        .exits(0)
        .prints("inside other.yaml t --sandbox=false\n");
    run(&brig, &["t", "./agent.yaml"])
        .exits(0)
        .prints("outside ./agent.yaml\n");
    run(&brig, &["other.yaml"]).exits(125);
}

#[test]
fn an_agent_without_a_sandbox_is_on_record_and_keeps_its_exit_code() {
    let brig = Brig::new();
    brig.write("agent.yaml", "name: x\ncommand: [sh, -c, 'exit $1', sh]\n");
    run(&brig, &["--sandbox=false", "agent.yaml", "7"])
        .exits(7)
        .complains("(said by: flag)");
    let records = unsandboxed(&brig);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["agent"], json!("x"));
    assert_eq!(records[0]["by"], json!("flag"));
    assert_eq!(records[0]["program"], json!("sh"));
    let ends = brig.run(["audit", "show", "--json", "--event", "execution_finished"]);
    assert!(ends.stdout().contains("\"exit_code\":7"));
    brig.write("agent.yaml", "name: x\ncommand: [no-such-program]\n");
    run(&brig, &["--sandbox=false", "agent.yaml"]).exits(127);
    brig.write(
        "agent.yaml",
        "name: x\ncommand: [sh, -c, 'kill -TERM $$']\n",
    );
    run(&brig, &["--sandbox=false", "agent.yaml"]).exits(143);
    // What can't be recorded is not run.
    let other = Brig::new();
    other.write("agent.yaml", "name: x\ncommand: [touch, ran]\n");
    fs::create_dir_all(other.home().join("state/brig")).unwrap();
    fs::write(other.home().join("state/brig/audit"), "no folder").unwrap();
    run(&other, &["--sandbox=false", "agent.yaml"]).exits(125);
    assert!(!other.home().join("ran").exists());
    fs::remove_file(other.home().join("state/brig/audit")).unwrap();
    run(&other, &["--sandbox=false", "agent.yaml"]).exits(0);
    assert!(other.home().join("ran").exists(), "control");
}

#[test]
fn what_needs_a_sandbox_is_not_left_out_silently() {
    let brig = brig("sandbox: false");
    for flags in [
        &["--allow", "a.example.com"][..],
        &["--memory", "64M"],
        &["--workspace", "."],
        &["--backend", "native"],
        &["--json"],
        &["--waive", "cpu"],
    ] {
        let done = run(&brig, &[flags, &["agent.yaml"]].concat()).exits(125);
        assert!(!done.stdout().contains("side"), "{flags:?}");
        done.complains(&format!("{} needs a sandbox", flags[0]));
    }
    run(&brig, &["agent.yaml"]).exits(0).prints("outside\n");
}

#[test]
fn a_policy_decides_with_and_without_a_sandbox() {
    let brig = Brig::new();
    let policy = "policy:\n  defaults: {action: allow}\n  rules:\n    - {name: no-x, condition: {field: command, operator: contains, value: forbidden}, action: deny}\n";
    brig.write("agent.yaml", &format!("name: a\ncommand: [echo]\n{policy}"));
    for flag in ["--sandbox", "--sandbox=false"] {
        run(&brig, &[flag, "agent.yaml", "fine"])
            .exits(0)
            .prints("fine\n");
        run(&brig, &[flag, "agent.yaml", "forbidden"])
            .exits(126)
            .prints("")
            .complains("denied by policy")
            .complains("no-x");
    }
    brig.write(
        "agent.yaml",
        "name: a\ncommand: [echo]\npolicy: rules/none.yaml\n",
    );
    run(&brig, &["agent.yaml"])
        .exits(125)
        .complains("cannot read `rules/none.yaml`: no such file");
}

#[test]
fn hosts_of_the_agent_file_count_however_the_sandbox_was_turned_on() {
    let brig = brig("network_allowlist: [agent.example.com]");
    brig.run(["sandbox", "allow", "user.example.com"]).exits(0);
    brig.run(["alias", "add", "t", "agent.yaml", "--sandbox"])
        .exits(0);
    let lines = "network: agent file allows 1 host: agent.example.com\n\
                 network: user config allows 1 host: user.example.com\n\
                 network: --allow allows 1 host: run.example.com\n";
    for words in [
        &["--sandbox", "./agent.yaml"][..],
        &["t"],
        &["./agent.yaml"],
    ] {
        let done = run(&brig, &[&["--allow", "run.example.com"], words].concat());
        let done = done.exits(0).prints("inside\n");
        assert_eq!(done.stderr(), lines, "{words:?}");
    }
    // Without a sandbox there is nothing to open, and no advice about it.
    let done = run(&brig, &["--sandbox=false", "agent.yaml"]).exits(0);
    assert!(!done.stderr().contains("network:") && !done.stderr().contains("sandbox allow"));
}

#[test]
fn the_result_names_the_agent_and_json_stays_one_object() {
    let brig = brig("network_allowlist: [agent.example.com]");
    let object = run(&brig, &["--json", "agent.yaml", "--", "--flag", "--"])
        .exits(0)
        .json();
    assert_eq!(object["agent_id"], json!("teller"));
    assert_eq!(object["result"]["stdout"], json!("inside --flag --\n"));
    let object = run(&brig, &["--json", "--agent", "other", "agent.yaml"])
        .exits(0)
        .json();
    assert_eq!(object["agent_id"], json!("other"));
    brig.write("agent.yaml", "name: x\ncommand: []\n");
    let object = run(&brig, &["--json", "agent.yaml"]).exits(125).json();
    assert_eq!(object["error"]["code"], json!("config.invalid"));
}

#[test]
fn a_bad_file_refuses_the_run_whatever_the_flag_says() {
    let brig = brig("network_allowlist: [\"a.example.com, b.example.com\"]");
    for flag in ["--sandbox", "--sandbox=false"] {
        run(&brig, &[flag, "agent.yaml"])
            .exits(125)
            .prints("")
            .complains("agent.yaml:3:31: runtime.network_allowlist[0]: `a.example.com, b.example.com` is no host");
    }
    brig.write("agent.yaml", &format!("name: a\ncommand: {COMMAND}\n"));
    write_config(&brig, "sandbox: perhaps\n");
    for flag in ["--sandbox", "--sandbox=false"] {
        run(&brig, &[flag, "agent.yaml"])
            .exits(125)
            .prints("")
            .complains("config.yaml:1:10: sandbox: ");
    }
    write_config(&brig, "");
    run(&brig, &["agent.yaml"]).exits(0).prints("inside\n");
    run(&brig, &["nobody"])
        .exits(125)
        .complains("`nobody` is neither an alias nor a file");
}

#[test]
fn a_backend_that_is_not_there_is_refused() {
    let brig = brig("backend: microvm");
    run(&brig, &["agent.yaml"]).exits(125).complains("microvm");
    run(&brig, &["--backend", "native", "agent.yaml"])
        .exits(0)
        .prints("inside\n");
}

#[test]
fn aliases_are_added_listed_replaced_and_removed() {
    let brig = brig("");
    brig.run(["alias", "ls"])
        .exits(0)
        .prints("")
        .complains("there are no aliases");
    let path = fs::canonicalize(brig.home()).unwrap().join("agent.yaml");
    let home = brig.home().join("agent.yaml");
    brig.run(["alias", "add", "one", "agent.yaml"]).exits(0);
    brig.run(["alias", "add", "two", "one", "--sandbox=false"])
        .exits(0)
        .complains("`two` runs without a sandbox");
    let listed = brig.run(["alias", "ls", "--json"]).exits(0).json();
    let found = listed["aliases"].as_array().unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(
        (&found[1]["name"], &found[1]["sandbox"]),
        (&json!("two"), &json!(false))
    );
    assert!(
        [json!(path), json!(home)].contains(&found[1]["path"]),
        "{listed}"
    );
    brig.run(["alias", "add", "two", "one", "--sandbox"])
        .exits(0)
        .stays_silent();
    let listed = brig.run(["alias", "ls"]).exits(0).stdout();
    assert!(
        listed.contains("two   on ") && listed.contains("one   - "),
        "{listed}"
    );
    brig.run(["alias", "rm", "two"]).exits(0).stays_silent();
    brig.run(["alias", "rm", "two"])
        .exits(0)
        .complains("there is no alias `two`");
    for name in ["../x", "-x", "a b", "a.b", ""] {
        brig.run(["alias", "add", "--", name, "agent.yaml"])
            .exits(125);
    }
    brig.run(["alias", "add", "three", "missing.yaml"])
        .exits(125)
        .complains("missing.yaml");
    run(&brig, &["one"]).exits(0).prints("inside\n");
}

#[test]
fn the_schema_is_printed() {
    let schema = Brig::new().run(["agent", "schema"]).exits(0).json();
    assert_eq!(schema["title"], json!("Brig agent"));
}
