//! A directory and a home in which the commands of a document are run, and what they say.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::blocks::{Step, World};
use super::root;
use crate::common::WORLD;

/// Whether a line is as expected, with `…` for any text.
fn line_matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn output_matches(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == "…" => {
            (0..=lines.len()).any(|skipped| output_matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| line_matches(first, line) && output_matches(rest, lines)),
    }
}

pub(super) struct Walkthrough {
    directory: TempDir,
}

impl Walkthrough {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let walkthrough = Self { directory };
        for path in [walkthrough.home(), walkthrough.project()] {
            std::fs::create_dir(path).expect("made");
        }
        let copied = Command::new("cp")
            .arg("-r")
            .args([root().join("examples"), walkthrough.project()])
            .status();
        assert!(copied.expect("cp").success());
        walkthrough
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    /// Exit code and output of a command line.
    fn run(&self, world: World, line: &str) -> (i32, String) {
        let brig = Path::new(env!("CARGO_BIN_EXE_brig"));
        let path = format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            brig.parent().expect("a directory").display()
        );
        let parts = match world {
            World::Usual | World::Engine => None,
            World::NoControlGroup => Some("/sys/fs/cgroup"),
            World::Mirror => Some("mirror"),
        };
        let around = parts.map(|parts| ["/usr/bin/python3", "-I", "-c", WORLD, parts, "/bin/bash"]);
        let mut command = Command::new("timeout");
        command
            .env_clear()
            .args(["--kill-after=5", "120"])
            .args(around.iter().flatten());
        if around.is_none() {
            command.arg("bash");
        }
        if world == World::Engine {
            command.env("DOCKER_HOST", engine().expect("it was asked for").host);
        }
        let done = command
            .args(["-c", &format!("exec 2>&1\n{line}")])
            .current_dir(self.project())
            .env("HOME", self.home())
            .env("PATH", path)
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .output()
            .expect("bash");
        let output = String::from_utf8_lossy(&done.stdout).into_owned();
        (done.status.code().unwrap_or(-1), output)
    }

    pub(super) fn follow(&self, world: World, step: &Step) -> Result<(), String> {
        match step {
            Step::File { name, text } => {
                let path = self.project().join(name);
                let folder = path.parent().expect("a directory");
                std::fs::create_dir_all(folder).expect("made");
                std::fs::write(path, text).expect("written");
                Ok(())
            }
            Step::Command { line, output: None } => match self.run(world, line) {
                (0, _) => Ok(()),
                (code, output) => Err(format!("$ {line}\nexit code {code}\n{output}")),
            },
            Step::Command {
                line,
                output: Some(expected),
            } => {
                let (_, output) = self.run(world, line);
                let lines: Vec<&str> = output.lines().collect();
                if output_matches(expected, &lines) {
                    return Ok(());
                }
                let expected = expected.join("\n");
                Err(format!("$ {line}\n{output}--- instead of\n{expected}"))
            }
        }
    }
}

/// The engine that `scripts/test` started, where the image of the documents is that of the tests.
pub(super) struct Engine {
    host: String,
}

pub(super) fn engine() -> Option<Engine> {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = format!("unix://{}", given("BRIG_TEST_DOCKER")?);
    let image = given("BRIG_TEST_IMAGE")?;
    let tagged = Command::new("docker")
        .args(["-H", &host, "tag", &image, "python:3.13-slim"])
        .status();
    tagged
        .is_ok_and(|status| status.success())
        .then_some(Engine { host })
}

#[test]
fn output_is_compared_line_by_line() {
    let matches = |expected: &[&str], output: &str| {
        let expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        output_matches(&expected, &output.lines().collect::<Vec<_>>())
    };
    assert!(matches(&["a", "b…d…"], "a\nbcd\n"));
    assert!(matches(&["a", "…", "z"], "a\nb\nc\nz\n"));
    assert!(matches(&["a", "…"], "a\n"));
    for (expected, output) in [
        (&["a"][..], "a\nb\n"),
        (&["a", "b"], "a\n"),
        (&["a…c"], "abd\n"),
        (&["ab"], "a\n"),
        (&[], "a\n"),
    ] {
        assert!(!matches(expected, output), "{expected:?}");
    }
}
