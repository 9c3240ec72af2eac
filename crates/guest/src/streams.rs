//! The standard streams of a program: pipes or a terminal, and the channels that they are relayed
//! on.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::termios::Winsize;

use crate::channel::Channel;
use crate::keeper::Stdio;

/// Output of the program. Bytes beyond the limit are counted and dropped here, so that the program
/// does not block.
#[derive(Debug)]
pub(crate) struct OutputStream {
    pub channel: u32,
    pub source: Option<OwnedFd>,
    pub total: u64,
    limit: u64,
}

impl OutputStream {
    pub(crate) fn new(channel: u32, source: Option<OwnedFd>, limit: u64) -> Self {
        Self {
            channel,
            source,
            total: 0,
            limit,
        }
    }

    /// Whether the owner can take more, or the bytes are dropped anyway.
    pub(crate) fn can_read(&self, channel: &Channel) -> bool {
        self.source.is_some() && (self.total >= self.limit || channel.room(self.channel) > 0)
    }

    /// Reads once and relays what fits. `last`: the execution is over, so an empty pipe is at its end
    /// even if somebody still has it open.
    pub(crate) fn pump(&mut self, channel: &mut Channel, last: bool) {
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
            // Reading a terminal whose other end is closed fails with EIO.
            Err(_) => self.close(channel),
        }
    }

    fn close(&mut self, channel: &mut Channel) {
        self.source = None;
        channel.send_end(self.channel);
    }
}

/// Input of the program.
#[derive(Debug)]
pub(crate) struct Stdin {
    pub channel: u32,
    pub sink: Option<OwnedFd>,
    pending: VecDeque<u8>,
    /// The last byte that was written.
    last: Option<u8>,
    ended: bool,
    terminal: bool,
}

const CTRL_D: u8 = 4;

impl Stdin {
    pub(crate) fn new(channel: u32, sink: OwnedFd, terminal: bool) -> Self {
        Self {
            channel,
            sink: Some(sink),
            pending: VecDeque::new(),
            last: None,
            ended: false,
            terminal,
        }
    }

    pub(crate) fn can_write(&self) -> bool {
        self.sink.is_some() && !self.pending.is_empty()
    }

    pub(crate) fn push(&mut self, bytes: &[u8], channel: &mut Channel) {
        if self.sink.is_none() {
            // Nobody reads it any more. Credit is still granted, so that the owner does not wait.
            channel.grant(self.channel, bytes.len());
            return;
        }
        self.pending.extend(bytes);
        self.last = bytes.last().copied().or(self.last);
        self.pump(channel);
    }

    pub(crate) fn end(&mut self, channel: &mut Channel) {
        if self.terminal && !self.ended {
            // A terminal has no end of file. In the middle of a line, the first Ctrl-D only flushes
            // the line.
            let whole_lines = matches!(self.last, None | Some(b'\n'));
            let count = if whole_lines { 1 } else { 2 };
            self.pending.extend(std::iter::repeat_n(CTRL_D, count));
        }
        self.ended = true;
        self.pump(channel);
    }

    pub(crate) fn pump(&mut self, channel: &mut Channel) {
        while let Some(sink) = &self.sink {
            let (front, _) = self.pending.as_slices();
            if front.is_empty() {
                break;
            }
            match rustix::io::write(sink, front) {
                Ok(count) => {
                    self.pending.drain(..count);
                    channel.grant(self.channel, count);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    channel.grant(self.channel, self.pending.len());
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

pub(crate) fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// The guest's ends of a program's streams.
#[derive(Debug)]
pub(crate) struct StreamEnds {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
}

impl StreamEnds {
    pub(crate) fn pipes() -> io::Result<(Self, Stdio)> {
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

    pub(crate) fn terminal(rows: u16, columns: u16) -> io::Result<(Self, Stdio)> {
        use rustix::fs::{Mode, OFlags};
        use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let program = match ioctl_tiocgptpeer(&master, flags) {
            // gVisor lacks the ioctl, and opens the peer by its name.
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
