//! The guest's side of one execution: its pipes, its end, what it has written so far.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use brig_linux::process::ChildUsage;
use brig_wire::{Exit, FromGuest, Hello, Spawn};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;

use crate::channel::Channel;
use crate::keeper::{Ended, Keeper, Report, Stdio};
use crate::{Failure, Step, files, trees};

/// What the program writes. Bytes beyond the limit are counted and dropped here.
#[derive(Debug)]
pub struct Stream {
    pub channel: u32,
    pub source: Option<OwnedFd>,
    pub total: u64,
    limit: u64,
}

impl Stream {
    fn new(channel: u32, source: Option<OwnedFd>, limit: u64) -> Self {
        Self {
            channel,
            source,
            total: 0,
            limit,
        }
    }

    /// Whether reading makes sense now.
    pub fn wants(&self, channel: &Channel) -> bool {
        self.source.is_some() && (self.total >= self.limit || channel.room(self.channel) > 0)
    }

    /// Reads once and passes on what fits. `last`: nobody should hold the other end any more, so
    /// an empty pipe is a closed one.
    pub fn pump(&mut self, channel: &mut Channel, last: bool) {
        let Some(source) = &self.source else { return };
        let mut buffer = [0; 64 * 1024];
        let left = self.limit.saturating_sub(self.total);
        let most = if left == 0 {
            buffer.len()
        } else {
            buffer
                .len()
                .min(channel.room(self.channel))
                .min(usize::try_from(left).unwrap_or(usize::MAX))
        };
        match rustix::io::read(source, &mut buffer[..most]) {
            Ok(0) => self.close(channel),
            Ok(count) => {
                if left > 0 {
                    channel.send_data(self.channel, &buffer[..count]);
                }
                self.total += count as u64;
            }
            Err(Errno::AGAIN) if !last => {}
            Err(Errno::INTR) => {}
            // A terminal whose other end is closed answers EIO.
            Err(_) => self.close(channel),
        }
    }

    fn close(&mut self, channel: &mut Channel) {
        self.source = None;
        channel.send_end(self.channel);
    }
}

/// What the program reads.
#[derive(Debug)]
pub struct Stdin {
    pub channel: u32,
    pub sink: Option<OwnedFd>,
    pending: VecDeque<u8>,
    last: Option<u8>,
    ended: bool,
    terminal: bool,
}

const CTRL_D: u8 = 4;

impl Stdin {
    pub fn wants(&self) -> bool {
        self.sink.is_some() && !self.pending.is_empty()
    }

    pub fn push(&mut self, bytes: &[u8], channel: &mut Channel) {
        if self.sink.is_none() {
            channel.grant(self.channel, bytes.len() as u32);
            return;
        }
        self.pending.extend(bytes);
        self.last = bytes.last().copied().or(self.last);
        self.pump(channel);
    }

    pub fn end(&mut self, channel: &mut Channel) {
        if self.terminal && !self.ended {
            // A terminal has no other way to say that there is no more. In the middle of a line
            // the first one only ends the line.
            let whole_lines = matches!(self.last, None | Some(b'\n'));
            let count = if whole_lines { 1 } else { 2 };
            self.pending.extend(std::iter::repeat_n(CTRL_D, count));
        }
        self.ended = true;
        self.pump(channel);
    }

    pub fn pump(&mut self, channel: &mut Channel) {
        while let Some(sink) = &self.sink {
            let (front, _) = self.pending.as_slices();
            if front.is_empty() {
                break;
            }
            match rustix::io::write(sink, front) {
                Ok(count) => {
                    self.pending.drain(..count);
                    channel.grant(self.channel, count as u32);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    channel.grant(self.channel, self.pending.len() as u32);
                    self.pending.clear();
                    self.sink = None;
                }
            }
        }
        if self.ended && self.pending.is_empty() {
            self.sink = None;
        }
    }
}

#[derive(Debug)]
pub struct Task {
    pub id: u32,
    /// What it was told to run.
    pub words: Vec<String>,
    pub keeper: u32,
    pub pidfd: Option<OwnedFd>,
    pub status: OwnedFd,
    report: Option<Report>,
    /// The status pipe has said all it will say.
    pub heard: bool,
    reaped: Option<ChildUsage>,
    /// The keeper is gone, and what it kept may not be.
    pub orphans: bool,
    terminal: Option<OwnedFd>,
    pub stdin: Option<Stdin>,
    pub streams: [Stream; 2],
    scratch: Option<String>,
    exit: Option<Exit>,
    failure: Option<(String, i32)>,
}

/// An execution that waits for its program.
#[derive(Debug)]
pub struct Prepared {
    keeper: Keeper,
    ends: Ends,
}

impl Prepared {
    pub fn new(
        hello: &Hello,
        handoff: Option<&OwnedFd>,
        terminal: Option<(u16, u16)>,
    ) -> Result<Self, Failure> {
        let (ends, inside) = match terminal {
            Some((rows, columns)) => Ends::terminal(rows, columns),
            None => Ends::pipes(),
        }
        .step("make pipes")?;
        let keeper = Keeper::start(hello, inside, handoff).step("start a process")?;
        Ok(Self { keeper, ends })
    }

    pub fn is_alive(&self) -> bool {
        self.keeper.is_alive()
    }

    pub fn keeper(&self) -> u32 {
        self.keeper.pid
    }

    /// Ends it; what has to be reaped remains.
    pub fn dismiss(self) -> Option<(u32, OwnedFd)> {
        let Keeper { pid, pidfd, .. } = self.keeper;
        trees::kill(pid);
        if pidfd.is_none() {
            let _ = brig_linux::process::wait(Some(pid), true);
        }
        Some((pid, pidfd?))
    }
}

impl Task {
    pub fn start(prepared: Prepared, spawn: Spawn) -> Result<Self, Failure> {
        let Prepared { keeper, ends } = prepared;
        let (keeper, pidfd, status) = keeper.order(&spawn).step("start a process")?;
        let terminal = ends.terminal.is_some();
        Ok(Self {
            id: spawn.id,
            words: spawn.argv,
            keeper,
            pidfd,
            status,
            report: None,
            heard: false,
            reaped: None,
            orphans: false,
            stdin: spawn.stdin.map(|channel| Stdin {
                channel,
                sink: Some(ends.stdin),
                pending: VecDeque::new(),
                last: None,
                ended: false,
                terminal,
            }),
            terminal: ends.terminal,
            streams: [
                Stream::new(spawn.stdout, Some(ends.stdout), spawn.output_limit),
                Stream::new(spawn.stderr, ends.stderr, spawn.output_limit),
            ],
            scratch: spawn.scratch,
            exit: None,
            failure: None,
        })
    }

    /// Ends the keeper, which nobody else has reaped, so that its number is still its own.
    pub fn kill(&self) {
        if self.reaped.is_none() {
            trees::kill(self.keeper);
        }
    }

    /// Signals the program itself: the one child that the keeper started.
    pub fn signal(&self, signal: i32) {
        let program = match self.pidfd {
            Some(_) => only_child(self.keeper),
            None => trees::program_of(self.keeper),
        };
        let program = program.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let (Some(program), Some(signal)) = (program, Signal::from_named_raw(signal)) {
            let _ = rustix::process::kill_process(program, signal);
        }
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        if let Some(terminal) = &self.terminal {
            let _ = rustix::termios::tcsetwinsize(terminal, winsize(rows, columns));
        }
    }

    pub fn ended(&self) -> bool {
        self.exit.is_some()
    }

    /// Something came over the status pipe: if the program was the last of its namespace, that is
    /// the end of the execution; otherwise the kernel is still ending the rest.
    pub fn listen(&mut self) {
        self.read_report();
        if self.pidfd.is_none() {
            // It has said all it has to say, or was killed.
            self.kill();
            self.reap(true);
            return;
        }
        if let Some(Report::Ended(Ended { alone: true, .. })) | Some(Report::Failed { .. }) =
            self.report
        {
            self.conclude();
        }
    }

    /// The keeper has ended, and with it everything in its namespace; in a container, what is left
    /// has to be ended first.
    pub fn reap(&mut self, wait: bool) {
        if let Ok(Some((_, usage))) = brig_linux::process::wait(Some(self.keeper), wait) {
            self.reaped_with(usage);
        }
    }

    pub fn reaped_with(&mut self, usage: ChildUsage) {
        self.reaped = Some(usage);
        self.read_report();
        match self.pidfd {
            Some(_) => self.conclude(),
            None => self.orphans = true,
        }
    }

    /// Nothing is left of what it kept.
    pub fn buried(&mut self) {
        if std::mem::take(&mut self.orphans) {
            self.conclude();
        }
    }

    fn read_report(&mut self) {
        if self.report.is_some() {
            return;
        }
        let mut bytes = [0; 512];
        let count = rustix::io::read(&self.status, &mut bytes).unwrap_or(0);
        self.report = Report::decode(&bytes[..count]);
        self.heard = true;
    }

    fn conclude(&mut self) {
        if self.exit.is_some() {
            return;
        }
        let usage = self.reaped.unwrap_or_default();
        let (mut cpu, mut peak) = (usage.cpu_microseconds, usage.peak_memory_bytes);
        let status = match &self.report {
            Some(Report::Ended(ended)) => {
                cpu = cpu.max(ended.cpu_microseconds);
                peak = peak.max(ended.peak_memory_bytes);
                ended.status
            }
            Some(Report::Failed { step, errno }) => {
                self.failure = Some((step.clone(), *errno));
                0
            }
            // Killed before the program ended.
            None => Signal::KILL.as_raw(),
        };
        self.exit = Some(Exit {
            id: self.id,
            status,
            cpu_microseconds: cpu,
            peak_memory_bytes: peak,
            stdout_total: 0,
            stderr_total: 0,
        });
    }

    /// The keeper, if it has to be reaped still.
    pub fn into_keeper(self) -> Option<(u32, OwnedFd)> {
        let pidfd = self.pidfd.filter(|_| self.reaped.is_none())?;
        Some((self.keeper, pidfd))
    }

    /// The last message of this execution, once its output is drained.
    pub fn farewell(&mut self) -> Option<FromGuest> {
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

fn only_child(keeper: u32) -> Option<u32> {
    let path = format!("/proc/{keeper}/task/{keeper}/children");
    let children = std::fs::read_to_string(path).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// The guest's side of a program's streams.
#[derive(Debug)]
struct Ends {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

impl Ends {
    fn pipes() -> io::Result<(Self, Stdio)> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let ((stdin_inside, stdin), (stdout, stdout_inside)) = (pipe()?, pipe()?);
        let (stderr, stderr_inside) = pipe()?;
        for end in [&stdin, &stdout, &stderr] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        let ours = Self {
            stdin,
            stdout,
            stderr: Some(stderr),
            terminal: None,
        };
        let inside = Stdio {
            stdin: stdin_inside,
            stdout: stdout_inside,
            stderr: stderr_inside,
        };
        Ok((ours, inside))
    }

    fn terminal(rows: u16, columns: u16) -> io::Result<(Self, Stdio)> {
        use rustix::fs::{Mode, OFlags};
        use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let program = match ioctl_tiocgptpeer(&master, flags) {
            // gVisor knows it only by its name.
            Err(Errno::NOTTY) => rustix::fs::open(
                ptsname(&master, Vec::new())?,
                OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
                Mode::empty(),
            ),
            peer => peer,
        }?;
        rustix::termios::tcsetwinsize(&master, winsize(rows, columns))?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let ours = Self {
            stdin: copy(&master)?,
            terminal: Some(copy(&master)?),
            stdout: master,
            stderr: None,
        };
        let inside = Stdio {
            stdin: copy(&program)?,
            stdout: copy(&program)?,
            stderr: program,
        };
        Ok((ours, inside))
    }
}
