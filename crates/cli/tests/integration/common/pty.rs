//! A real terminal to run Brig on.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Terminal {
    master: File,
    /// Kept open, so that the settings can be read after the program has gone.
    slave: OwnedFd,
    child: Child,
    seen: Vec<u8>,
    /// The settings from before anything ran.
    pub before: Termios,
}

impl Terminal {
    /// Starts a command as the leader of a session on a terminal of its own.
    pub(crate) fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        set_size(&master, rows, columns);
        let before = tcgetattr(&slave).unwrap();

        let mut leader = Command::new("setsid");
        leader
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => leader.env(key, value),
                None => leader.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            leader.current_dir(folder);
        }
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = leader
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            master: master.into(),
            slave,
            child,
            seen: Vec::new(),
            before,
        }
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.master, rows, columns);
    }

    pub(crate) fn settings(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    /// Waits for the program to end, then reads the settings it left.
    #[track_caller]
    pub(crate) fn settings_after_exit(&mut self) -> Termios {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "still running: {}", self.shown());
            self.read(Duration::from_millis(20));
        }
        self.settings()
    }

    pub(crate) fn keys(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    /// `setsid` becomes the program: it has the same id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads until `text` has been shown; what came before it is forgotten.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self
                .seen
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = found {
                self.seen.drain(..at + text.len());
                return;
            }
            assert!(
                Instant::now() < deadline,
                "`{text}` never came: {}",
                self.shown()
            );
            self.read(Duration::from_millis(100));
        }
    }

    /// Waits for the end and gives all that was not yet waited for.
    #[track_caller]
    pub(crate) fn finish(mut self) -> (ExitStatus, Vec<u8>) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            self.read(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "still running: {}", self.shown());
        };
        while self.read(Duration::from_millis(20)) {}
        (status, std::mem::take(&mut self.seen))
    }

    fn read(&mut self, wait: Duration) -> bool {
        let mut ends = [PollFd::new(&self.master, PollFlags::IN)];
        let wait = Timespec::try_from(wait).unwrap();
        if poll(&mut ends, Some(&wait)).unwrap() == 0 {
            return false;
        }
        let mut buffer = [0; 4096];
        match self.master.read(&mut buffer) {
            Ok(length) => {
                self.seen.extend_from_slice(&buffer[..length]);
                length > 0
            }
            Err(_) => false,
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(master: impl AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size).unwrap();
}
