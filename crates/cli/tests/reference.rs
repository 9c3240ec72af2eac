//! The reference that is checked in is the help that is built in.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use common::Brig;

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
        "docs/reference/cli.md is out of date; run `BRIG_BLESS=1 cargo test -p brig-cli --test reference`"
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
        "doctor",
        "completions",
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
fn completions_are_printed_for_each_shell() {
    let brig = Brig::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = brig.run(["completions", shell]).exits(0).stdout();
        assert!(script.contains("checkpoint"), "{shell}");
    }
    brig.run(["completions", "tcsh"]).exits(125);
}

#[test]
fn the_version_is_told() {
    let brig = Brig::new();
    let version = format!("brig {}\n", env!("CARGO_PKG_VERSION"));
    brig.run(["--version"]).exits(0).prints(&version);
    brig.run(["version"]).exits(0).prints(&version);
}
