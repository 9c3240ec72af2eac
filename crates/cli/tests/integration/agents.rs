//! `brig agent run` and `brig alias`: what is run, in what, and who said so.

use std::fs;

use crate::common::{Brig, Done};
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
    // Where there is no log, there is an error in its place.
    let records = lines.stdout().lines().map(line).collect::<Vec<_>>();
    records
        .into_iter()
        .filter(|record| !record.is_null())
        .collect()
}

#[test]
fn whoever_is_nearest_decides_whether_there_is_a_sandbox() {
    let table: [(&str, &str, &str, &[&str], &str); 9] = [
        // agent file, user, alias, flag, and where it runs
        ("", "", "", &[], "inside"),
        ("", "sandbox: false\n", "", &[], "outside"),
        // What the user says is not changed by a file.
        ("sandbox: true", "sandbox: false\n", "", &[], "outside"),
        ("sandbox: false", "sandbox: true\n", "", &[], "inside"),
        ("sandbox: false", "sandbox: false\n", "", &[], "outside"),
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
            .contains("warning: NO SANDBOX: `sh` runs with your own permissions");
        assert_eq!(warned, place == "outside", "{what}: {}", done.stderr());
        assert_eq!(unsandboxed(&brig).len(), usize::from(warned), "{what}");
    }
}

/// An alias without a sandbox is for the file that was there when it was made.
#[test]
fn an_alias_does_not_run_a_changed_file_without_a_sandbox() {
    let brig = brig("");
    brig.run(["alias", "add", "t", "agent.yaml", "--sandbox=false"])
        .exits(0);
    run(&brig, &["t"]).exits(0).prints("outside\n");
    let text = fs::read_to_string(brig.home().join("agent.yaml")).unwrap();
    brig.write("agent.yaml", &format!("{text}# changed\n"));
    let refused = run(&brig, &["t"]).exits(125).prints("");
    refused.complains("its alias runs it without a sandbox");
    assert_eq!(unsandboxed(&brig).len(), 1, "only the control");
    // Controls: in a sandbox it runs as it is, and without one once it is trusted again.
    run(&brig, &["--sandbox", "t"]).exits(0).prints("inside\n");
    brig.run(["agent", "trust", "t"]).exits(0);
    run(&brig, &["t"]).exits(0).prints("outside\n");
}

/// A downloaded file must not decide to run with all that its reader may do.
#[test]
fn a_file_alone_does_not_turn_the_sandbox_off() {
    let brig = brig("sandbox: false");
    let refused = |words: &[&str]| {
        let done = run(&brig, words).exits(125).prints("");
        done.complains("wants to run without a sandbox");
        assert_eq!(unsandboxed(&brig).len(), 0);
    };
    refused(&["./agent.yaml"]);
    // An alias that says nothing about it is no consent, and neither is an empty configuration.
    brig.run(["alias", "add", "t", "agent.yaml"]).exits(0);
    write_config(&brig, "aliases:\n  t:\n    path: /none\n");
    brig.run(["alias", "add", "t", "agent.yaml"]).exits(0);
    refused(&["t"]);
    let object = Done(
        brig.command(["agent", "run", "--json", "agent.yaml"])
            .output()
            .unwrap(),
    );
    assert_eq!(
        object.exits(125).json()["error"]["code"],
        json!("agent.untrusted")
    );
    run(&brig, &["--sandbox", "agent.yaml"])
        .exits(0)
        .prints("inside\n");
    // Controls: said once for this file, or for this run.
    brig.run(["agent", "trust", "agent.yaml"])
        .exits(0)
        .complains("without a sandbox");
    run(&brig, &["agent.yaml"]).exits(0).prints("outside\n");
    run(&brig, &["t"]).exits(0).prints("outside\n");
    let changes = brig.run(["audit", "show", "--json", "--event", "allowlist_changed"]);
    assert!(changes.stdout().contains("trusted-agents"));
    brig.run(["agent", "trust", "--remove", "agent.yaml"])
        .exits(0);
    let done = run(&brig, &["agent.yaml"]).exits(125);
    done.complains("brig agent trust");
    run(&brig, &["--sandbox=false", "agent.yaml"])
        .exits(0)
        .prints("outside\n");
}

/// Trust is in a text at a place: neither another text there, nor a copy elsewhere, nor a changed
/// policy has it.
#[test]
fn trust_is_in_a_file_as_it_was_seen() {
    let brig = Brig::new();
    let agent = format!(
        "name: teller\ncommand: {COMMAND}\npolicy: rules.yaml\nruntime: {{sandbox: false}}\n"
    );
    brig.write("agent.yaml", &agent);
    brig.write("rules.yaml", "name: p\ndefaults: {action: allow}\n");
    brig.run(["agent", "trust", "agent.yaml"]).exits(0);
    run(&brig, &["agent.yaml"]).exits(0).prints("outside\n");
    brig.write("copy.yaml", &agent);
    run(&brig, &["copy.yaml"]).exits(125).prints("");
    brig.write("agent.yaml", &format!("{agent}\n"));
    run(&brig, &["agent.yaml"]).exits(125).prints("");
    brig.write("agent.yaml", &agent);
    brig.write("rules.yaml", "name: q\ndefaults: {action: allow}\n");
    run(&brig, &["agent.yaml"]).exits(125).prints("");
    brig.write("rules.yaml", "name: p\ndefaults: {action: allow}\n");
    std::os::unix::fs::symlink("agent.yaml", brig.home().join("link.yaml")).unwrap();
    run(&brig, &["link.yaml"]).exits(0).prints("outside\n");
    // A list that can't be read is no list.
    let list = brig.home().join("config/brig/trusted-agents.json");
    let good = fs::read(&list).unwrap();
    fs::write(&list, "{").unwrap();
    run(&brig, &["agent.yaml"]).exits(125).prints("");
    fs::write(&list, good).unwrap();
    run(&brig, &["agent.yaml"]).exits(0).prints("outside\n");
}

#[test]
fn a_file_alone_does_not_open_addresses_that_are_not_public() {
    for (runtime, policy) in [
        ("network_allowlist: [169.254.169.254]", ""),
        ("network_allowlist: [\"127.0.0.1:8080\"]", ""),
        ("network_allowlist: [10.0.0.0/8]", ""),
        ("network_allowlist: [198.16.0.0/13]", ""),
        ("network_allowlist: [\"3ffe::/15\"]", ""),
        (
            "",
            "policy: {defaults: {action: allow}, network_allowlist: [169.254.169.254]}\n",
        ),
    ] {
        let brig = Brig::new();
        let text = format!("name: a\ncommand: {COMMAND}\n{policy}runtime: {{{runtime}}}\n");
        brig.write("agent.yaml", &text);
        let done = run(&brig, &["agent.yaml"]).exits(125).prints("");
        done.complains("which only you may decide");
        run(&brig, &["--sandbox", "agent.yaml"]).exits(125);
        brig.run(["agent", "trust", "agent.yaml"]).exits(0);
        run(&brig, &["agent.yaml"]).exits(0).prints("inside\n");
    }
    // Controls: what is public is open to a file, and what the user opens anyway too.
    let public = brig("network_allowlist: [agent.example.com, 192.1.1.1]");
    run(&public, &["agent.yaml"]).exits(0).prints("inside\n");
    let own = brig("network_allowlist: [\"127.0.0.1:8080\"]");
    run(&own, &["--allow", "127.0.0.0/8:*", "agent.yaml"]).exits(0);
    own.run(["sandbox", "allow", "127.0.0.1:8080"]).exits(0);
    run(&own, &["agent.yaml"]).exits(0).prints("inside\n");
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
        .complains("(set by: flag)");
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
    brig.run(["agent", "trust", "agent.yaml"]).exits(0);
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
            .complains(
                "agent.yaml:3:31: runtime.network_allowlist[0]: `a.example.com, \
                 b.example.com` is not a valid host",
            );
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
    brig.run(["agent", "trust", "agent.yaml"]).exits(0);
    run(&brig, &["agent.yaml"]).exits(125).complains("microvm");
    run(&brig, &["--backend", "native", "agent.yaml"])
        .exits(0)
        .prints("inside\n");
}

#[test]
fn a_file_chooses_another_backend_only_if_trusted() {
    let brig = brig("backend: microvm");
    let done = run(&brig, &["--json", "agent.yaml"]).exits(125);
    let done = done.complains("chooses the backend `microvm`");
    assert_eq!(done.json()["error"]["code"], json!("agent.untrusted"));
    // What the user says needs no trust, and is not changed by the file.
    run(&brig, &["--backend", "native", "agent.yaml"])
        .exits(0)
        .prints("inside\n");
    write_config(&brig, "defaults: {backend: native}\n");
    run(&brig, &["agent.yaml"]).exits(0).prints("inside\n");
    write_config(&brig, "");
    brig.run(["agent", "trust", "agent.yaml"])
        .exits(0)
        .complains("this agent may now choose the backend `microvm`");
    let done = run(&brig, &["agent.yaml"]).exits(125);
    assert!(!done.stderr().contains("only you may decide"));
    // The default is no choice.
    brig.write(
        "agent.yaml",
        &format!("name: teller\ncommand: {COMMAND}\nruntime: {{backend: native}}\n"),
    );
    run(&brig, &["agent.yaml"]).exits(0).prints("inside\n");
}

#[test]
fn aliases_are_added_listed_replaced_and_removed() {
    let brig = brig("");
    brig.run(["alias", "ls"])
        .exits(0)
        .prints("")
        .complains("no aliases");
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

#[test]
fn a_policy_and_a_flag_limit_the_time_of_an_agent() {
    let brig = Brig::new();
    let agent = "name: sleeper\ncommand: [sleep, '60']\n";
    brig.write("agent.yaml", agent);
    brig.run(["agent", "run", "--timeout", "300ms", "agent.yaml"])
        .exits(124);
    let policy = "policy: {defaults: {action: allow, timeout_seconds: 1}}\n";
    brig.write("agent.yaml", &format!("{agent}{policy}"));
    brig.run(["agent", "run", "agent.yaml"]).exits(124);
}

/// Runs an agent with a variable in the caller's environment.
fn run_with_token(brig: &Brig, words: &[&str]) -> Done {
    let words = ["agent", "run"].iter().chain(words);
    let mut command = brig.command(words);
    command.env("API_TOKEN", "tops3cret");
    Done(command.output().unwrap())
}

#[test]
fn mounts_and_secrets_of_a_file_need_the_trust_of_the_user() {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("agents/rules")).unwrap();
    brig.write("agents/rules/a.txt", "rule\n");
    let file = "name: a\ncommand: [sh, -c, 'cat /rules/a.txt; echo $API_TOKEN $MODE']\nruntime:\n  \
                mounts: ['./rules:/rules']\n  secrets: [API_TOKEN]\n  env: {MODE: careful}\n";
    brig.write("agents/agent.yaml", file);
    run_with_token(&brig, &["agents/agent.yaml"])
        .exits(125)
        .prints("")
        .complains("agents/rules`, read-only as /rules")
        .complains("takes `API_TOKEN` from your environment")
        .complains("brig agent trust");
    brig.run(["agent", "trust", "agents/agent.yaml"])
        .exits(0)
        .complains("this agent may now see `")
        .complains("take `API_TOKEN`");
    run_with_token(&brig, &["agents/agent.yaml"])
        .exits(0)
        .prints("rule\ntops3cret careful\n")
        .complains("shown: `API_TOKEN` of your environment");
    // Flags override, and a variable that is not set is an error.
    run_with_token(
        &brig,
        &[
            "-e",
            "MODE=fast",
            "-e",
            "API_TOKEN=other",
            "agents/agent.yaml",
        ],
    )
    .exits(0)
    .prints("rule\nother fast\n");
    brig.run(["agent", "run", "agents/agent.yaml"])
        .exits(125)
        .complains("`API_TOKEN`, which is not set");
    // Another text is another file.
    brig.write("agents/agent.yaml", &format!("{file}# changed\n"));
    run_with_token(&brig, &["agents/agent.yaml"])
        .exits(125)
        .prints("");
    // What the user gives needs no trust.
    let flags = [
        "-v",
        "agents/rules:/rules",
        "-e",
        "API_TOKEN",
        "agents/agent.yaml",
    ];
    run_with_token(&brig, &flags)
        .exits(0)
        .prints("rule\ntops3cret careful\n");
    let log = brig.run(["audit", "show", "--json"]).exits(0).stdout();
    assert!(!log.contains("tops3cret"), "{log}");
}

#[test]
fn a_file_lowers_limits_and_raises_them_only_if_trusted() {
    let brig = Brig::new();
    let write = |limits: &str| {
        let agent = format!("name: a\ncommand: [sleep, '60']\nruntime: {{limits: {limits}}}\n");
        brig.write("agent.yaml", &agent);
    };
    write("{timeout: 500ms}");
    brig.run(["agent", "run", "agent.yaml"]).exits(124);
    write("{timeout: 500ms, memory: 2G, pids: 1000}");
    brig.run(["agent", "run", "agent.yaml"])
        .exits(125)
        .complains("raises the limit `memory` and raises the limit `pids`");
    let flags = [
        "agent",
        "run",
        "--memory",
        "100M",
        "--pids",
        "50",
        "agent.yaml",
    ];
    brig.run(flags).exits(124);
    // A default of the user counts, too.
    write_config(&brig, "defaults: {limits: {timeout: 200ms}}\n");
    write("{timeout: 500ms}");
    brig.run(["agent", "run", "agent.yaml"])
        .exits(125)
        .complains("raises the limit `timeout`");
    brig.run(["agent", "trust", "agent.yaml"]).exits(0);
    brig.run(["agent", "run", "agent.yaml"]).exits(124);
    for wrong in ["{memory: 5}", "{timeout: soon}", "{memry: 5M}"] {
        write(wrong);
        brig.run(["agent", "run", "agent.yaml"])
            .exits(125)
            .complains("agent.yaml:3");
    }
    for wrong in [
        "{mounts: [x]}",
        "{secrets: ['A B']}",
        "{mounts: ['/etc:relative']}",
    ] {
        let agent = format!("name: a\ncommand: [sleep, '60']\nruntime: {wrong}\n");
        brig.write("agent.yaml", &agent);
        brig.run(["agent", "run", "agent.yaml"])
            .exits(125)
            .complains("agent.yaml:3");
    }
}

#[test]
fn the_policy_of_a_file_decides_no_more_than_the_file() {
    let brig = Brig::new();
    fs::create_dir(brig.home().join("data")).unwrap();
    let data = brig.home().join("data");
    for (policy, wants, told) in [
        (
            format!("sandbox_mounts: {{input_dir: {}}}", data.display()),
            "read-only as /input",
            "read-only as /input",
        ),
        (
            "waive: [syscalls]".to_owned(),
            "gives up the control `syscalls`",
            "run without the control `syscalls`",
        ),
        (
            "defaults: {max_memory_mb: 4096}".to_owned(),
            "raises the limit `memory`",
            "have the limits of its policy",
        ),
        (
            "network_allowlist: ['127.0.0.1:9']".to_owned(),
            "allows `127.0.0.1:9`",
            "reach `127.0.0.1:9`",
        ),
    ] {
        brig.write("policy.yaml", &format!("{policy}\n"));
        brig.write(
            "agent.yaml",
            "name: a\ncommand: ['true']\npolicy: policy.yaml\n",
        );
        brig.run(["agent", "run", "agent.yaml"])
            .exits(125)
            .complains(wants);
        brig.run(["agent", "trust", "agent.yaml"])
            .exits(0)
            .complains(told);
        // Whether the policy and the machine allow it is another question.
        let done = brig.run(["agent", "run", "agent.yaml"]);
        assert!(
            !done.stderr().contains("only you may decide"),
            "{}",
            done.stderr()
        );
        // The same policy by the user's own hand needs no trust.
        brig.write("agent.yaml", "name: b\ncommand: ['true']\n");
        let done = brig.run(["agent", "run", "--policy", "policy.yaml", "agent.yaml"]);
        assert!(
            !done.stderr().contains("only you may decide"),
            "{}",
            done.stderr()
        );
    }
}

#[test]
fn trust_is_in_the_directories_that_were_shown() {
    let brig = Brig::new();
    for place in ["one", "two"] {
        fs::create_dir_all(brig.home().join(place).join("data")).unwrap();
        brig.write(&format!("{place}/data/name"), place);
    }
    let agent = "name: a\ncommand: [cat, /input/name]\n\
                 policy: {defaults: {action: allow}, sandbox_mounts: {input_dir: data}}\n";
    brig.write("agent.yaml", agent);
    let from = |place: &str, word: &str| {
        let mut command = brig.command(["agent", word, "../agent.yaml"]);
        let command = command.current_dir(brig.home().join(place));
        Done(command.output().unwrap())
    };
    from("one", "trust").exits(0).complains("one/data");
    from("one", "run").exits(0).prints("one");
    from("two", "run")
        .exits(125)
        .prints("")
        .complains("two/data")
        .complains("only you may decide");
}

#[test]
fn a_trusted_file_mounts_no_more_than_a_flag_may() {
    let brig = Brig::new();
    let agent = "name: a\ncommand: ['true']\nruntime: {mounts: ['/etc:/x']}\n";
    brig.write("agent.yaml", agent);
    brig.run(["agent", "trust", "agent.yaml"]).exits(0);
    brig.run(["agent", "run", "agent.yaml"])
        .exits(125)
        .complains("it contains the system configuration");
}
