//! What the program writes, as it comes.

use std::io::{self, IsTerminal};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::escape::Neutraliser;

/// Writes one stream to one of ours. Writing happens on another thread, so that a reader who
/// does not read holds up neither the timeout nor Ctrl-C.
#[derive(Debug)]
struct Sink<W> {
    to: W,
    neutraliser: Option<Neutraliser>,
    queue: Bytes,
    /// Something was queued and has not all arrived yet.
    busy: bool,
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    fn new(to: W, neutralise: bool) -> Self {
        Self {
            to,
            neutraliser: neutralise.then(Neutraliser::default),
            queue: Bytes::new(),
            busy: false,
        }
    }

    fn push(&mut self, bytes: Bytes) {
        debug_assert!(
            !self.busy,
            "the last piece is written before the next is taken"
        );
        self.queue = match &mut self.neutraliser {
            Some(neutraliser) => neutraliser.push(&bytes).into(),
            None => bytes,
        };
        self.busy = true;
    }

    /// What was held back; nothing more comes.
    fn finish(&mut self) {
        if let Some(neutraliser) = &mut self.neutraliser {
            self.queue = neutraliser.finish().into();
            self.busy = !self.queue.is_empty();
        }
    }

    /// Giving up half-way loses nothing and writes nothing twice.
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

/// Both streams of one program.
#[derive(Debug)]
pub struct Display {
    stdout: Sink<tokio::io::Stdout>,
    stderr: Sink<tokio::io::Stderr>,
    stderr_broken: bool,
}

impl Display {
    /// `raw` is for a program that was given the terminal.
    pub fn new(raw: bool) -> Self {
        Self {
            stdout: Sink::new(tokio::io::stdout(), io::stdout().is_terminal() && !raw),
            stderr: Sink::new(tokio::io::stderr(), io::stderr().is_terminal() && !raw),
            stderr_broken: false,
        }
    }

    /// Everything taken so far has arrived.
    pub fn is_idle(&self) -> bool {
        !self.stdout.busy && !self.stderr.busy
    }

    pub fn stdout(&mut self, bytes: Bytes) {
        self.stdout.push(bytes);
    }

    pub fn stderr(&mut self, bytes: Bytes) {
        if !self.stderr_broken {
            self.stderr.push(bytes);
        }
    }

    pub fn finish(&mut self) {
        self.stdout.finish();
        self.stderr.finish();
    }

    /// Writes what is queued. Only a broken stdout is an error: a program whose complaints
    /// nobody reads still works.
    pub async fn advance(&mut self) -> io::Result<()> {
        if self.stderr.advance().await.is_err() {
            self.stderr.busy = false;
            self.stderr_broken = true;
        }
        self.stdout.advance().await
    }
}
