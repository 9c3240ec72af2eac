//! The guest's side of one execution.
//!
//! An execution ends in one of two ways. With a namespace of its own, the exit of its keeper is the
//! exit of everything in it; if the keeper reports that nothing else is left, the execution ends with
//! that report, because the kernel takes milliseconds to remove a namespace. In a container, the
//! keeper is reaped first, then its orphans are killed, and only then the execution has ended.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use brig_linux::process::ChildUsage;
use brig_wire::{Exit, FromGuest, Hello, Spawn};
use rustix::process::{Pid, Signal};

use crate::connectors::ListenerHandoff;
use crate::keeper::{Keeper, StatusPipe};
use crate::keeper_report::{Ended, KeeperReport};
use crate::streams::{OutputStream, Stdin, StreamEnds, winsize};
use crate::{Failure, Step, files, process_tree};

/// What the owner has to end an execution whose time is over, before the guest does.
const OWNER_FIRST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Task {
    pub id: u32,
    /// The requested program and its arguments.
    pub argv: Vec<String>,
    pub keeper: u32,
    /// Only with a namespace of its own.
    pub pidfd: Option<OwnedFd>,
    pub status: StatusPipe,
    report: Option<KeeperReport>,
    /// Whether the status pipe was read. Only one report is sent.
    pub status_read: bool,
    reaped: Option<ChildUsage>,
    /// The keeper was reaped, and processes of the execution may be left. Only in a container.
    pub orphans: bool,
    terminal: Option<OwnedFd>,
    pub stdin: Option<Stdin>,
    pub streams: [OutputStream; 2],
    scratch: Option<String>,
    /// CPU time of the container when this started, if nothing else has run in it since.
    pub cpu_before: Option<u64>,
    /// When the guest ends it by itself.
    deadline: Option<Instant>,
    out_of_time: bool,
    exit: Option<Exit>,
    failure: Option<(String, i32)>,
}

/// A keeper with its streams, without a program yet.
#[derive(Debug)]
pub(crate) struct PreparedTask {
    keeper: Keeper,
    ends: StreamEnds,
}

impl PreparedTask {
    pub(crate) fn new(
        hello: &Hello,
        handoff: ListenerHandoff<'_>,
        terminal: Option<(u16, u16)>,
    ) -> Result<Self, Failure> {
        let (ends, inside) = match terminal {
            Some((rows, columns)) => StreamEnds::terminal(rows, columns),
            None => StreamEnds::pipes(),
        }
        .step("make pipes")?;
        let keeper = Keeper::start(hello, inside, handoff).step("start a process")?;
        Ok(Self { keeper, ends })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.keeper.is_alive()
    }

    pub(crate) fn keeper(&self) -> u32 {
        self.keeper.pid
    }

    /// Kills the keeper. Returned if it has to be reaped later.
    pub(crate) fn kill(self) -> Option<(u32, OwnedFd)> {
        let Keeper { pid, pidfd, .. } = self.keeper;
        process_tree::kill(pid);
        if pidfd.is_none() {
            let _ = brig_linux::process::wait(Some(pid), true);
        }
        Some((pid, pidfd?))
    }
}

impl Task {
    pub(crate) fn start(prepared: PreparedTask, spawn: Spawn) -> Result<Self, Failure> {
        let PreparedTask { keeper, ends } = prepared;
        if let (Some(scratch), Some(beside)) = (&spawn.scratch, &spawn.beside) {
            // A script that needs none of it runs without.
            let _ = files::link_beside(scratch, beside);
        }
        let (keeper, pidfd, status) = keeper.run(&spawn).step("start a process")?;
        let terminal = ends.terminal.is_some();
        Ok(Self {
            id: spawn.id,
            argv: spawn.argv,
            keeper,
            pidfd,
            status,
            report: None,
            status_read: false,
            reaped: None,
            orphans: false,
            stdin: spawn
                .stdin
                .map(|channel| Stdin::new(channel, ends.stdin, terminal)),
            terminal: ends.terminal,
            streams: [
                OutputStream::new(spawn.stdout, Some(ends.stdout), spawn.output_limit),
                OutputStream::new(spawn.stderr, ends.stderr, spawn.output_limit),
            ],
            scratch: spawn.scratch,
            cpu_before: None,
            deadline: Instant::now().checked_add(spawn.timeout.saturating_add(OWNER_FIRST)),
            out_of_time: false,
            exit: None,
            failure: None,
        })
    }

    /// Kills the keeper. Only the guest reaps it, so before that its process id can't be reused.
    pub(crate) fn kill(&self) {
        if self.reaped.is_none() {
            process_tree::kill(self.keeper);
        }
    }

    /// The time until the guest ends it.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let deadline = self.deadline.filter(|_| self.exit.is_none())?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Ends it when its time is over. Usually the owner has done that.
    pub(crate) fn end_in_time(&mut self) {
        if self.time_left().is_some_and(|left| left.is_zero()) {
            self.deadline = None;
            self.out_of_time = true;
            self.kill();
        }
    }

    /// Signals the program. What a terminal or a shell would send to a whole job (Ctrl-C, `kill %1`)
    /// also reaches what it has started in its process group.
    pub(crate) fn signal(&self, signal: i32) {
        let program = match self.pidfd {
            Some(_) => only_child(self.keeper),
            None => process_tree::program_of(self.keeper),
        };
        let program = program.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let (Some(program), Some(signal)) = (program, Signal::from_named_raw(signal)) {
            let job = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal);
            // There is no group before the program has started its session.
            if !job || rustix::process::kill_process_group(program, signal).is_err() {
                let _ = rustix::process::kill_process(program, signal);
            }
        }
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        if let Some(terminal) = &self.terminal {
            let _ = rustix::termios::tcsetwinsize(terminal, winsize(rows, columns));
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// The status pipe is readable. If nothing else is left in the namespace, the execution is over;
    /// otherwise it is over when the kernel has ended the rest.
    pub(crate) fn read_status(&mut self) {
        self.read_report();
        if self.pidfd.is_none() {
            // The keeper has reported, or was killed. Either way it is no longer needed.
            self.kill();
            self.reap(true);
            return;
        }
        if let Some(KeeperReport::Ended(Ended { alone: true, .. }) | KeeperReport::Failed { .. }) =
            self.report
        {
            self.conclude();
        }
    }

    /// The keeper has ended, and everything in its namespace with it. In a container, what is left
    /// has to be killed first.
    pub(crate) fn reap(&mut self, wait: bool) {
        if let Ok(Some((_, usage))) = brig_linux::process::wait(Some(self.keeper), wait) {
            self.reaped_with(usage);
        }
    }

    pub(crate) fn reaped_with(&mut self, usage: ChildUsage) {
        self.reaped = Some(usage);
        self.read_report();
        match self.pidfd {
            Some(_) => self.conclude(),
            None => self.orphans = true,
        }
    }

    /// No process of this execution is left.
    pub(crate) fn orphans_reaped(&mut self) {
        if std::mem::take(&mut self.orphans) {
            self.conclude();
        }
    }

    fn read_report(&mut self) {
        if self.report.is_some() {
            return;
        }
        let mut bytes = [0; 512];
        let count = rustix::io::read(&self.status.pipe, &mut bytes).unwrap_or(0);
        self.report = KeeperReport::decode(&bytes[..count], &self.status.key);
        self.status_read = true;
    }

    fn conclude(&mut self) {
        if self.exit.is_some() {
            return;
        }
        let usage = self.reaped.unwrap_or_default();
        let (mut cpu, mut peak) = (usage.cpu_microseconds, usage.peak_memory_bytes);
        let status = match &self.report {
            Some(KeeperReport::Ended(ended)) => {
                cpu = cpu.max(ended.cpu_microseconds);
                peak = peak.max(ended.peak_memory_bytes);
                ended.status
            }
            Some(KeeperReport::Failed { step, errno }) => {
                self.failure = Some((step.clone(), *errno));
                0
            }
            // The keeper was killed before the program ended.
            None => Signal::KILL.as_raw(),
        };
        self.exit = Some(Exit {
            id: self.id,
            status,
            out_of_time: self.out_of_time,
            cpu_microseconds: cpu,
            peak_memory_bytes: peak,
            stdout_total: 0,
            stderr_total: 0,
        });
    }

    /// The keeper, if it still has to be reaped.
    pub(crate) fn into_keeper(self) -> Option<(u32, OwnedFd)> {
        let pidfd = self.pidfd.filter(|_| self.reaped.is_none())?;
        Some((self.keeper, pidfd))
    }

    /// The last message about this execution, once its output has been read.
    pub(crate) fn final_message(&mut self) -> Option<FromGuest> {
        let mut exit = self.exit?;
        if self.streams.iter().any(|stream| stream.source.is_some()) {
            return None;
        }
        if let Some(scratch) = self.scratch.take() {
            files::remove_scratch(&scratch);
        }
        if let Some((step, errno)) = self.failure.take() {
            return Some(FromGuest::SpawnFailed {
                id: self.id,
                step,
                errno,
            });
        }
        exit.stdout_total = self.streams[0].total;
        exit.stderr_total = self.streams[1].total;
        Some(FromGuest::Exited(exit))
    }
}

/// The one child of a keeper in a namespace of its own.
fn only_child(keeper: u32) -> Option<u32> {
    let path = format!("/proc/{keeper}/task/{keeper}/children");
    let children = std::fs::read_to_string(path).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
