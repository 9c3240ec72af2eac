//! The reference that is checked in is the help that is built in.

use std::path::Path;
use std::process::Command;

use crate::common::Brig;

#[test]
fn the_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let now = Brig::new().run(["reference"]).exits(0).stdout();
    if std::env::var_os("BRIG_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == now,
        "docs/reference/cli.md is out of date; run `BRIG_BLESS=1 cargo test -p brig-cli reference`"
    );
}

#[test]
fn every_command_has_help_with_an_example() {
    let brig = Brig::new();
    for command in [
        "run",
        "session",
        "session create",
        "session exec",
        "session ls",
        "session inspect",
        "session cp",
        "session checkpoint",
        "session restore",
        "session fork",
        "session destroy",
        "agent",
        "agent run",
        "agent schema",
        "alias",
        "alias add",
        "alias ls",
        "alias rm",
        "sandbox",
        "sandbox allow",
        "sandbox deny",
        "sandbox list",
        "sandbox block",
        "sandbox unblock",
        "sandbox check",
        "sandbox suggest",
        "sandbox used",
        "policy",
        "policy check",
        "policy explain",
        "policy test",
        "policy diff",
        "policy schema",
        "policy eval",
        "approvals",
        "approvals ls",
        "approvals show",
        "approvals approve",
        "approvals deny",
        "audit",
        "audit show",
        "audit verify",
        "audit prove",
        "audit check-proof",
        "audit consistency",
        "audit head",
        "audit export",
        "audit agt-chain",
        "audit rotate-key",
        "commands",
        "commands scan",
        "config",
        "config show",
        "doctor",
        "prune",
        "completions",
        "help",
    ] {
        let done = brig.run(command.split(' ').chain(["--help"])).exits(0);
        assert!(
            done.stdout().contains("Examples:\n  "),
            "{command}: {}",
            done.stdout()
        );
        assert!(
            done.stdout().contains(&format!("brig {command}")),
            "{command}"
        );
        done.stays_silent();
    }
    brig.run(["--help"]).exits(0);
    brig.run(["-h"]).exits(0);
}

#[test]
fn topics_are_listed_and_each_has_a_text() {
    let brig = Brig::new();
    let all = brig.run(["help"]).exits(0).stdout();
    assert!(all.contains("Usage: brig <COMMAND>"), "{all}");
    let (_, topics) = all.split_once("brig help exit-codes, ").expect("topics");
    let topics = topics.lines().next().unwrap_or_default();
    for topic in topics.split(", ").chain(["exit-codes"]) {
        let text = brig.run(["help", topic]).exits(0).stdout();
        let lines = text.lines().count();
        assert!((8..40).contains(&lines), "{topic}: {lines} lines");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{topic}"
        );
    }
    assert_eq!(topics.split(", ").count(), 5);
    let exec = brig.run(["help", "session", "exec"]).exits(0).stdout();
    assert!(exec.contains("brig session exec [OPTIONS]"), "{exec}");
    brig.run(["help", "nothing"])
        .exits(125)
        .complains("there is no topic or command `nothing`")
        .complains("exit-codes, network");
}

#[test]
fn the_policy_of_the_topic_is_valid() {
    let brig = Brig::new();
    let text = brig.run(["help", "policy"]).exits(0).stdout();
    let lines = text.lines().skip_while(|line| !line.starts_with("  name:"));
    let lines = lines.take_while(|line| !line.is_empty());
    let policy: Vec<&str> = lines.map(|line| &line[2..]).collect();
    brig.write("policy.yaml", &policy.join("\n"));
    brig.run(["policy", "check", "policy.yaml"]).exits(0);
}

#[test]
fn completions_are_printed_for_each_shell() {
    let brig = Brig::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = brig.run(["completions", shell]).exits(0).stdout();
        assert!(script.contains("BRIG_COMPLETE"), "{shell}");
    }
    brig.run(["completions", "tcsh"]).exits(125);
}

#[test]
fn every_command_has_a_manual_page() {
    let brig = Brig::new();
    let folder = brig.home().join("man1");
    brig.run(["man", folder.to_str().unwrap()])
        .exits(0)
        .stays_silent();
    // The commands of the reference, and no others.
    let reference = brig.run(["reference"]).exits(0).stdout();
    let mut expected: Vec<String> = (reference.lines())
        .filter(|line| line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('`')?.1.trim_end_matches('`')))
        .map(|command| format!("{}.1", command.replace(' ', "-")))
        .collect();
    let mut found: Vec<String> = (std::fs::read_dir(&folder).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    for name in &found {
        let page = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(page.contains("\n.SH NAME\n"), "{name}");
        assert!(page.contains("\n.SH DESCRIPTION\n"), "{name}");
    }
    let page = std::fs::read_to_string(folder.join("brig-run.1")).unwrap();
    for part in ["\n.SH EXAMPLES\n", "\\-\\-timeout", "\n.SH \"SEE ALSO\"\n"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    brig.run(["man", "/proc/nothing"])
        .exits(125)
        .complains("error: cannot write manual pages to `/proc/nothing`: ");
}

#[test]
fn the_version_shows_commit_backends_and_c_library() {
    let brig = Brig::new();
    let told = brig.run(["version", "--json"]).exits(0).json();
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    let backends: Vec<&str> = (told["backends"].as_array().unwrap().iter())
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(backends[0], "native");
    // The commit of this very tree; none where it is no checkout.
    let head = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8(output.stdout).unwrap());
    let commit = match told["commit"].as_str() {
        Some(commit) => {
            let short = commit.strip_suffix("-dirty").unwrap_or(commit);
            assert_eq!(short.len(), 10, "{commit}");
            if let Some(head) = head {
                assert!(head.starts_with(short), "{commit} is not {head}");
            }
            format!("{commit}, ")
        }
        None => String::new(),
    };
    // The tests are built for the same target.
    let libc = if cfg!(target_env = "musl") {
        "musl"
    } else {
        "glibc"
    };
    let is_static = cfg!(target_feature = "crt-static");
    assert_eq!(
        (&told["libc"], &told["static"]),
        (&libc.into(), &is_static.into())
    );
    let linked = format!("{}{libc}", if is_static { "static " } else { "" });
    let text = format!(
        "brig {} ({commit}{}, {linked})\n",
        env!("CARGO_PKG_VERSION"),
        backends.join(" ")
    );
    brig.run(["--version"]).exits(0).prints(&text);
    brig.run(["version"]).exits(0).prints(&text);
}
