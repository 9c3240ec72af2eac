//! The README and the guides: every command in them is run, and its output compared.
//!
//! In a document,
//!
//! - a `console` block has commands after `$ `, each followed by its output (stdout and stderr). `…`
//!   stands for any text in a line; alone in a line, for any lines;
//! - a `sh` block has commands that must succeed; their output is not compared;
//! - any other block that begins with a comment such as `# job.py` is a file of that name;
//! - a comment before a block says how it is run, in one or more of these words, separated by commas:
//!   `as root` and `as user` only for that kind of caller; `without a control group`; `beside a mirror`, where
//!   http://mirror.corp:8080 is a package mirror with a private address; `with an engine`, the one of
//!   the tests;
//! - the comment `<!-- not run: REASON -->` exempts a block, and `<!-- run by: PROGRAM -->` this block and
//!   the others in its language that follow.
//!
//! The commands of a document run in order, in one directory that has only the examples, with an empty
//! home directory beside it.

mod blocks;
mod walkthrough;

use std::path::{Path, PathBuf};

use blocks::{Audience, Step, World, steps, unexplained};
use walkthrough::{Walkthrough, engine};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Follows a document from its beginning to its end.
fn follow(document: &str) {
    let text = std::fs::read_to_string(root().join(document)).expect("the document");
    let is_root = rustix::process::geteuid().is_root();
    let walkthrough = Walkthrough::new();
    let mut failures = Vec::new();
    let (mut followed, mut left_out) = (0, 0);
    for (setting, step) in steps(&text) {
        if !setting.includes(is_root) {
            continue;
        }
        if setting.world == World::Engine && engine().is_none() {
            left_out += 1;
            continue;
        }
        followed += 1;
        failures.extend(walkthrough.follow(setting.world, &step).err());
    }
    if left_out > 0 {
        let why = "no container engine was started for the tests (scripts/test does, as root)";
        brig_testing::skip(&format!("{left_out} commands of {document}"), why);
    }
    assert!(followed + left_out > 0, "{document} has nothing to follow");
    assert!(
        failures.is_empty(),
        "{document}: {} of {followed} differ\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn the_readme() {
    follow("README.md");
}

#[test]
fn guide_agents() {
    follow("docs/guides/agents.md");
}

#[test]
fn guide_approvals() {
    follow("docs/guides/approvals.md");
}

#[test]
fn guide_ci() {
    follow("docs/guides/ci.md");
}

#[test]
fn guide_commands() {
    follow("docs/guides/commands.md");
}

#[cfg(feature = "docker")]
#[test]
fn guide_docker() {
    follow("docs/guides/docker.md");
}

#[test]
fn guide_first_run() {
    follow("docs/guides/first-run.md");
}

#[test]
fn guide_from_agt() {
    follow("docs/guides/from-agt.md");
}

#[test]
fn guide_install() {
    follow("docs/guides/install.md");
}

#[test]
fn guide_limits_without_root() {
    follow("docs/guides/limits-without-root.md");
}

#[cfg(feature = "mcp")]
#[test]
fn guide_mcp() {
    follow("docs/guides/mcp.md");
}

#[test]
fn guide_network() {
    follow("docs/guides/network.md");
}

#[test]
fn guide_sessions() {
    follow("docs/guides/sessions.md");
}

#[test]
fn guide_tools() {
    follow("docs/guides/tools.md");
}

#[test]
fn guide_troubleshooting() {
    follow("docs/guides/troubleshooting.md");
}

/// No guide is left out, and no block of one without a reason.
#[test]
fn every_guide_has_its_test() {
    let own = include_str!("mod.rs");
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(root().join("docs/guides")).expect("the guides") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("text");
        let text =
            std::fs::read_to_string(root().join("docs/guides").join(&name)).expect("a guide");
        let runs = steps(&text).iter().any(|(setting, step)| {
            setting.audience != Audience::Nobody && matches!(step, Step::Command { .. })
        });
        let test = format!("follow(\"docs/guides/{name}\")");
        if runs && !own.contains(&test) {
            missing.push(test);
        }
        let unexplained = unexplained(&text).into_iter();
        missing.extend(unexplained.map(|block| format!("a reason in {name}:{block}")));
    }
    assert!(missing.is_empty(), "missing: {missing:#?}");
}
