//! Running the real binary.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "every test file takes what it needs")]

pub mod lists;
pub mod pty;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Brig with a state folder of its own, gone with it.
pub struct Brig {
    home: TempDir,
}

impl Brig {
    pub fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
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

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Done {
        Done(self.command(args).output().unwrap())
    }

    pub fn run_with_input<S: AsRef<OsStr>>(
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

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home().join(name), text).unwrap();
    }
}

#[derive(Debug)]
pub struct Done(pub Output);

impl Done {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert_eq!(self.stdout(), text, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn complains(self, part: &str) -> Self {
        assert!(
            self.stderr().contains(part),
            "expected `{part}` in {}",
            self.stderr()
        );
        self
    }

    #[track_caller]
    pub fn stays_silent(self) -> Self {
        assert_eq!(self.stderr(), "", "{self:#?}");
        self
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// The one object on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.0.stdout)
            .unwrap_or_else(|error| panic!("not one JSON object: {error}: {self:#?}"))
    }
}

/// Whether a process with this text in its command line is on the machine, other than Brig.
pub fn is_running(marker: &str) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| !line.windows(4).any(|part| part == b"brig"))
        .any(|line| {
            line.windows(marker.len())
                .any(|part| part == marker.as_bytes())
        })
}
