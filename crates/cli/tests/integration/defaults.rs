//! Defaults in the user's configuration: they apply unless a flag says otherwise.

use std::fs;

use serde_json::Value;

use crate::common::{Brig, Done};

fn with_config(text: &str) -> Brig {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("config/brig")).unwrap();
    fs::write(brig.home().join("config/brig/config.yaml"), text).unwrap();
    brig
}

#[test]
fn limits_of_the_configuration_apply_and_flags_win() {
    let brig = with_config("defaults:\n  limits: {timeout: 500ms, pids: 40, output_max: 1K}\n");
    brig.run(["run", "--", "sleep", "60"]).exits(124);
    brig.run(["run", "--timeout", "30s", "--", "sleep", "1"])
        .exits(0);
    let code = "print('x' * 3000)";
    let kept = |words: &[&str]| {
        let words = ["run", "--timeout", "30s", "--json"].iter().chain(words);
        let object = brig.run(words.chain(&["-c", code])).exits(0).json();
        object["result"]["stdout"].as_str().unwrap().len()
    };
    assert_eq!(kept(&[]), 1024);
    assert_eq!(kept(&["--output-max", "2K"]), 2048);
    brig.run(["session", "create", "s"]).exits(0);
    let inspected = brig.run(["session", "inspect", "s", "--json"]).json();
    let processes = &inspected["config"]["limits"]["processes"];
    assert_eq!(processes["value"], 40);
    assert_eq!(processes["asked"], true);
    brig.run(["session", "create", "t", "--pids", "50"])
        .exits(0);
    let inspected = brig.run(["session", "inspect", "t", "--json"]).json();
    assert_eq!(inspected["config"]["limits"]["processes"]["value"], 50);
    // Agents, too.
    brig.write("agent.yaml", "name: sleeper\ncommand: [sleep, '60']\n");
    brig.run(["agent", "run", "agent.yaml"]).exits(124);
}

#[test]
fn a_policy_of_the_configuration_applies_unless_a_flag_names_one() {
    let brig = with_config("defaults: {policy: mine.yaml}\n");
    let rule = "{name: no-word, condition: {field: code, operator: contains, value: forbidden}, \
                action: deny}";
    let policy = format!("rules:\n  - {rule}\ndefaults: {{action: allow}}\n");
    // Without the policy, nothing is run.
    brig.run(["run", "-c", "print(1)"])
        .exits(125)
        .complains("mine.yaml");
    fs::write(brig.home().join("config/brig/mine.yaml"), policy).unwrap();
    brig.run(["run", "-c", "print(1)"]).exits(0);
    brig.run(["run", "-c", "print('forbidden')"])
        .exits(126)
        .complains("config/brig/mine.yaml");
    brig.write("other.yaml", "defaults: {action: allow}\n");
    brig.run(["run", "--policy", "other.yaml", "-c", "print('forbidden')"])
        .exits(0);
    brig.run(["session", "create", "s"]).exits(0);
    brig.run(["session", "exec", "s", "-c", "print('forbidden')"])
        .exits(126);
    // The policy of an agent file does not take its place.
    let deny = "rules:\n  - {name: no-true, condition: {field: command, operator: contains, \
                value: 'true'}, action: deny}\ndefaults: {action: allow}\n";
    fs::write(brig.home().join("config/brig/mine.yaml"), deny).unwrap();
    let agent = "name: a\ncommand: ['true']\npolicy: {defaults: {action: allow}}\n";
    brig.write("agent.yaml", agent);
    brig.run(["agent", "run", "agent.yaml"]).exits(126);
    brig.run(["agent", "run", "--policy", "other.yaml", "agent.yaml"])
        .exits(0);
}

#[test]
fn a_backend_of_the_configuration_is_used_unless_a_flag_names_one() {
    let brig = with_config("defaults: {backend: 'none-such'}\n");
    brig.run(["run", "-c", "print(1)"])
        .exits(125)
        .complains("unknown backend `none-such`");
    brig.run(["run", "--backend", "native", "-c", "print(1)"])
        .exits(0);
    // Options of other backends do no harm.
    let brig = with_config("defaults: {options: {image: 'debian:13'}}\n");
    brig.run(["run", "-c", "print(1)"]).exits(0).prints("1\n");
}

/// `doctor` tries what a run would do, and its exit code is about that.
#[test]
fn doctor_tries_the_defaults_of_the_configuration() {
    let doctor = |config: &str, code: i32| {
        let brig = with_config(config);
        let mut command = brig.command(["doctor", "--json"]);
        command.env("DOCKER_HOST", "unix:///nonexistent/engine.sock");
        let doctor = Done(command.output().unwrap()).exits(code).json();
        let run = brig
            .command(["run", "--", "true"])
            .env("DOCKER_HOST", "unix:///nonexistent/engine.sock")
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(code), "{config}: {run:?}");
        doctor
    };
    let problem = |object: &Value, name: &str| {
        let backends = object["backends"].as_array().unwrap();
        let found = backends.iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {object}"))["problem"]["code"].clone()
    };
    let object = doctor("defaults: {limits: {pids: 40}}\n", 0);
    assert_eq!(object["default_backend"], "native");
    assert_eq!(problem(&object, "native"), Value::Null);
    // Native could run code, but it is not what would be used.
    let object = doctor("defaults: {backend: none-such}\n", 125);
    assert_eq!(object["default_backend"], "none-such");
    assert_eq!(problem(&object, "none-such"), "backend.unknown");
    assert_eq!(problem(&object, "native"), Value::Null);
    let object = doctor("defaults: {backend: 'native:absent'}\n", 125);
    assert_eq!(problem(&object, "native:absent"), "backend.unknown");
    #[cfg(feature = "docker")]
    {
        let object = doctor("defaults: {backend: docker}\n", 125);
        assert_eq!(problem(&object, "docker"), "engine.unreachable");
    }
    // Limits that nothing can hold.
    let object = doctor("defaults: {limits: {timeout: 0s}}\n", 125);
    assert_eq!(object["default_backend"], "native");
    // A policy that can't be read.
    let object = doctor("defaults: {policy: absent.yaml}\n", 125);
    assert_eq!(object["state"]["problem"]["code"], "file.failed");
    let text = with_config("defaults: {backend: none-such}\n");
    let text = text.run(["doctor"]).exits(125).stdout();
    assert!(text.contains("none-such: cannot run code here"), "{text}");
    assert!(text.contains("default backend: none-such"), "{text}");
}

#[test]
fn every_setting_is_shown_with_its_source() {
    let brig = with_config(
        "defaults: {limits: {memory: 1G}, policy: p.yaml}\nsandbox_allowlist: [a.example]\n",
    );
    let object = brig.run(["config", "show", "--json"]).exits(0).json();
    let settings = object["settings"].as_array().unwrap();
    let of = |name: &str| {
        let one = settings.iter().find(|one| one["name"] == name).unwrap();
        (
            one["value"].as_str().unwrap().to_owned(),
            one["from"].as_str().unwrap().to_owned(),
        )
    };
    let own = |value: &str| (value.to_owned(), "config.yaml".to_owned());
    assert_eq!(of("memory"), own("1G"));
    assert_eq!(of("allowed hosts"), own("a.example"));
    assert!(of("policy").0.ends_with("config/brig/p.yaml"));
    assert_eq!(of("disk"), ("256M".to_owned(), "built in".to_owned()));
    let text = brig.run(["config", "show"]).exits(0).stdout();
    assert!(
        text.contains("memory") && text.contains("config.yaml"),
        "{text}"
    );
    for wrong in [
        "{limits: {memory: 512}}",
        "{limits: {memory: 5X}}",
        "{limits: {pids: 0}}",
        "{colour: red}",
    ] {
        let brig = with_config(&format!("defaults: {wrong}\n"));
        brig.run(["run", "-c", "print(1)"])
            .exits(125)
            .complains("config.yaml:1:");
    }
    // An empty home.
    Brig::new().run(["config", "show"]).exits(0);
}
