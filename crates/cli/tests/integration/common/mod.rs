//! Running the real binary.

pub(crate) mod lists;
pub(crate) mod pty;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tempfile::TempDir;

/// Runs a program where something is different.
pub(crate) const WORLD: &str = include_str!("world.py");

/// Brig with a state folder of its own, gone with it.
pub(crate) struct Brig {
    home: TempDir,
}

impl Brig {
    pub(crate) fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brig"));
        command
            .args(args)
            .current_dir(self.home())
            .env("HOME", self.home())
            .env("XDG_STATE_HOME", self.home().join("state"))
            .env("XDG_CONFIG_HOME", self.home().join("config"))
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Done {
        Done(self.command(args).output().unwrap())
    }

    pub(crate) fn run_with_input<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Done {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Done(output)
    }

    /// Runs it in a world of these parts: `world.py`. A part that is a path is covered.
    pub(crate) fn run_with_covers<S: AsRef<OsStr>>(
        &self,
        parts: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Done {
        let brig = self.command(args);
        let mut command = Command::new("/usr/bin/python3");
        command
            .args(["-I", "-c", WORLD, parts])
            .arg(brig.get_program())
            .args(brig.get_args())
            .current_dir(self.home())
            .stdin(Stdio::null());
        for (name, value) in brig.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Done(command.output().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home().join(name), text).unwrap();
    }
}

#[derive(Debug)]
pub(crate) struct Done(pub Output);

impl Done {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert_eq!(self.stdout(), text, "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, part: &str) -> Self {
        assert!(
            self.stderr().contains(part),
            "expected `{part}` in {}",
            self.stderr()
        );
        self
    }

    #[track_caller]
    pub(crate) fn stays_silent(self) -> Self {
        assert_eq!(self.stderr(), "", "{self:#?}");
        self
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// The one object on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.0.stdout)
            .unwrap_or_else(|error| panic!("not one JSON object: {error}: {self:#?}"))
    }
}

/// Digits that no other test has: what a process is found by.
pub(crate) fn digits() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}0{next}", std::process::id())
}

/// Whether a process with this text in its command line is on the machine, other than Brig.
pub(crate) fn is_running(marker: &str) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| !line.windows(4).any(|part| part == b"brig"))
        .any(|line| {
            line.windows(marker.len())
                .any(|part| part == marker.as_bytes())
        })
}
