//! Runs probes outside the sandbox, in fences that keep the machine safe from them.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::host;
use crate::probe::{Attempts, Probe};

const PYTHON: &str = "/usr/bin/python3";

/// What stands between a control and the machine.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    before: Vec<OsString>,
    seconds: u32,
}

impl Fence {
    /// Nothing but a session of its own and a time limit.
    pub fn plain() -> Self {
        Self {
            before: words(&["setsid", "--wait"]),
            seconds: 60,
        }
    }

    /// All namespaces and all capabilities over them: what a sandbox would be without its
    /// filters. Everything in it ends with its first process.
    pub fn namespaces() -> Self {
        let unshare = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--cgroup",
            "--fork",
            "--kill-child=SIGKILL",
            "--mount-proc",
        ];
        Self {
            before: words(&unshare),
            seconds: 60,
        }
    }

    /// Only a PID namespace: everything in it ends with its first process.
    pub fn processes() -> Self {
        let unshare = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
            "--mount-proc",
        ];
        Self {
            before: words(&unshare),
            seconds: 60,
        }
    }

    /// An ordinary user, also if the tests are run by root.
    pub fn ordinary_user() -> Self {
        if host::is_root() {
            let drop = [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ];
            Self {
                before: words(&drop),
                seconds: 60,
            }
        } else {
            Self::plain()
        }
    }

    /// A command of its own that the program is appended to.
    #[must_use]
    pub fn through(mut self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.before.extend(words.into_iter().map(Into::into));
        self
    }

    pub fn run(&self, probe: &Probe, args: &Value) -> Attempts {
        let (mut command, _folder) = self.command(probe, args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        Attempts::parse(&output.stdout, &output.stderr)
    }

    /// Starts a probe that goes on until its input ends, and waits for its first answer.
    pub fn hold(&self, probe: &Probe, args: &Value) -> Held {
        let (mut command, folder) = self.command(probe, args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        assert!(
            first.contains("\"ok\": true"),
            "{} did not start: {first}",
            probe.name
        );
        Held {
            child,
            stdin,
            _folder: folder,
        }
    }

    fn command(&self, probe: &Probe, args: &Value) -> (Command, tempfile::TempDir) {
        let folder = host::scratch();
        let path = folder.path().join("probe.py");
        std::fs::File::create(&path)
            .unwrap()
            .write_all(probe.source().as_bytes())
            .unwrap();
        let mut words = self.before.clone();
        words.extend([
            PYTHON.into(),
            "-I".into(),
            path.into(),
            with_fence(args).into(),
        ]);
        (bounded(self.seconds, words), folder)
    }
}

/// A process that keeps something alive until this is dropped.
#[derive(Debug)]
pub struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    _folder: tempfile::TempDir,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// A program that is ended after so many seconds, whatever it does.
pub fn bounded(seconds: u32, words: impl IntoIterator<Item = OsString>) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg("--signal=KILL")
        .arg(seconds.to_string())
        .args(words);
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8");
    command
}

/// The arguments every probe gets besides its own.
pub fn with_fence(args: &Value) -> String {
    let mut args = args.clone();
    let host = std::fs::read_link("/proc/self/ns/pid").unwrap();
    args["host_pid_namespace"] = json!(host);
    args.to_string()
}

/// Waits until `done` or the time is over; says which.
pub fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    done()
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}
