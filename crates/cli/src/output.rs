//! Shows the program's output while it runs.

use std::io::{self, IsTerminal};

use brig_audit::Record;
use brig_sandbox::ExecutionId;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::escape::TextEscaper;
use crate::stream::{Lines, Stream};

/// Writes one stream of the program to one of ours. Writing happens on another thread, so that a
/// reader that does not read delays neither the timeout nor Ctrl-C.
#[derive(Debug)]
struct Sink<W> {
    to: W,
    escaper: Option<TextEscaper>,
    queue: Bytes,
    /// Whether queued bytes are not written yet.
    busy: bool,
    /// Whether the last byte was not the end of a line.
    within_line: bool,
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    fn new(to: W, escape: bool) -> Self {
        Self {
            to,
            escaper: escape.then(TextEscaper::default),
            queue: Bytes::new(),
            busy: false,
            within_line: false,
        }
    }

    fn push(&mut self, bytes: Bytes) {
        debug_assert!(
            !self.busy,
            "the last piece is written before the next is taken"
        );
        self.within_line = bytes.last().is_some_and(|last| *last != b'\n');
        self.queue = match &mut self.escaper {
            Some(escaper) => escaper.push(&bytes).into(),
            None => bytes,
        };
        self.busy = true;
    }

    /// Queues what was held back. Nothing more follows.
    fn finish(&mut self) {
        if let Some(escaper) = &mut self.escaper {
            self.queue = escaper.finish().into();
            self.busy = !self.queue.is_empty();
        }
    }

    /// Safe to cancel: nothing is lost or written twice.
    async fn advance(&mut self) -> io::Result<()> {
        if !self.busy {
            return Ok(());
        }
        while self.queue.has_remaining() {
            let written = self.to.write(&self.queue).await?;
            self.queue.advance(written);
        }
        self.to.flush().await?;
        self.busy = false;
        Ok(())
    }
}

/// Both output streams of a program.
#[derive(Debug)]
pub(crate) struct Display {
    stdout: Sink<tokio::io::Stdout>,
    stderr: Sink<tokio::io::Stderr>,
    stderr_broken: bool,
    stderr_cut: bool,
    /// Both are shown on a terminal.
    one_screen: bool,
    /// With `--json=stream`, all goes to stdout.
    lines: Option<Lines>,
}

impl Display {
    /// `raw` is for a program that has the terminal.
    pub(crate) fn new(raw: bool) -> Self {
        Self {
            stdout: Sink::new(tokio::io::stdout(), io::stdout().is_terminal() && !raw),
            stderr: Sink::new(tokio::io::stderr(), io::stderr().is_terminal() && !raw),
            stderr_broken: false,
            stderr_cut: false,
            one_screen: io::stdout().is_terminal() && io::stderr().is_terminal(),
            lines: None,
        }
    }

    /// Lines of JSON, the first of which says which execution was started.
    pub(crate) fn lines(id: &ExecutionId) -> Self {
        let lines = Lines::new(io::stdout().is_terminal());
        // The lines are escaped as JSON.
        let mut display = Self::new(true);
        display.stdout.push(lines.started(id));
        display.lines = Some(lines);
        display
    }

    /// Shows what the program requested, with `--json=stream`.
    pub(crate) fn attempt(&mut self, record: &Record) {
        if let Some(lines) = &self.lines {
            self.stdout.push(lines.attempt(record));
        }
    }

    /// Whether everything queued so far is written.
    pub(crate) fn is_idle(&self) -> bool {
        !self.stdout.busy && !self.stderr.busy
    }

    pub(crate) fn stdout(&mut self, bytes: Bytes) {
        match &mut self.lines {
            Some(lines) => self.stdout.push(lines.output(Stream::Stdout, &bytes)),
            None => self.stdout.push(bytes),
        }
    }

    pub(crate) fn stderr(&mut self, bytes: Bytes) {
        if let Some(lines) = &mut self.lines {
            self.stdout.push(lines.output(Stream::Stderr, &bytes));
        } else if !self.stderr_broken {
            self.stderr.push(bytes);
        }
    }

    /// Whether a part of stderr could not be written although its reader exists, as on a full disk.
    pub(crate) fn stderr_cut(&self) -> bool {
        self.stderr_cut
    }

    /// Whether a message on stderr would begin within a line of the program.
    pub(crate) fn within_line(&self) -> bool {
        let stdout = self.one_screen && self.lines.is_none() && self.stdout.within_line;
        self.stderr.within_line || stdout
    }

    pub(crate) fn finish(&mut self) {
        match &mut self.lines {
            Some(lines) => self.stdout.push(lines.finish()),
            None => self.stdout.finish(),
        }
        self.stderr.finish();
    }

    /// Writes what is queued. Only a broken stdout is an error: without a reader of stderr the program
    /// still works.
    pub(crate) async fn advance(&mut self) -> io::Result<()> {
        if let Err(error) = self.stderr.advance().await {
            self.stderr.busy = false;
            self.stderr_broken = true;
            self.stderr_cut = error.kind() != io::ErrorKind::BrokenPipe;
        }
        self.stdout.advance().await
    }
}
