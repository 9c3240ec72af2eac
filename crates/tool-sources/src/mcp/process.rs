//! A server that is a program, with MCP on its standard streams.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use brig_linux::supervise::Supervision;
use rmcp::RoleClient;
use rmcp::service::ClientInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

use super::{Client, failed, lifecycles, serve};
use crate::SourceError;
use crate::program::Program;
use crate::text::clean;

/// The most that a server may send until the next call: messages that nobody has asked for are a flood.
const UNTIL_NEXT_CALL: usize = 32 << 20;
/// The longest message.
const LONGEST_LINE: usize = 16 << 20;
/// How long is waited for the end of stderr: something else may hold it open.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of the end of stderr is kept.
const LAST_WORDS: usize = 1 << 10;

/// The process of a server.
pub(super) struct Process {
    child: Child,
    supervision: Option<Supervision>,
    left: Arc<AtomicUsize>,
    stderr: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

pub(super) async fn connect(
    server: &str,
    program: &Program,
) -> Result<(Client, Process), SourceError> {
    let mut first = None;
    for lifecycle in lifecycles() {
        let (mut process, transport) = start(program)
            .map_err(|error| failed(server, &format!("it did not start: {error}")))?;
        match serve(transport, lifecycle).await {
            Ok(client) => return Ok((client, process)),
            Err(error) => {
                let last = process.last_words().await;
                let problem = failed(server, &format!("it did not start: {error}{last}"));
                first = first.or(Some(problem));
                // Only one that has answered is asked again.
                if !matches!(*error, ClientInitializeError::JsonRpcError(_)) {
                    break;
                }
            }
        }
    }
    Err(first.unwrap_or_else(|| failed(server, "it did not start")))
}

type Transport = AsyncRwTransport<RoleClient, Limited<ChildStdout>, ChildStdin>;

fn start(program: &Program) -> io::Result<(Process, Transport)> {
    let (mut child, supervision) = program.start()?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        return Err(io::Error::other("it has no streams"));
    };
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let process = Process {
        child,
        supervision: Some(supervision),
        left: Arc::new(AtomicUsize::new(UNTIL_NEXT_CALL)),
        reader: tokio::spawn(keep_end(stderr, kept.clone())),
        stderr: kept,
    };
    let left = process.left.clone();
    let stdout = Limited {
        stream: stdout,
        left,
    };
    let transport = AsyncRwTransport::new(stdout, stdin).with_max_line_length(LONGEST_LINE);
    Ok((process, transport))
}

impl Process {
    /// Allows it to send some more.
    pub(super) fn expect_answer(&self) {
        self.left.store(UNTIL_NEXT_CALL, Ordering::Relaxed);
    }

    /// The end of what it wrote to stderr, for a message. One that has ended may not have been read to its end yet.
    pub(super) async fn last_words(&mut self) -> String {
        if !self.reader.is_finished() {
            let _ = tokio::time::timeout(PATIENCE, &mut self.reader).await;
        }
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        match String::from_utf8_lossy(&stderr).trim() {
            "" => String::new(),
            text => format!("; the end of its stderr: {}", clean(text, LAST_WORDS)),
        }
    }

    /// Waits for its end, and enforces it after a time. Its stdin was closed.
    pub(super) async fn end(&mut self, within: Duration) {
        let _ = tokio::time::timeout(within, self.child.wait()).await;
        self.supervision = None;
        let _ = self.child.wait().await;
    }
}

async fn keep_end(mut stderr: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stderr.read(&mut part).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&part[..length]);
        let surplus = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..surplus);
    }
}

/// A stream that ends when too much has been read from it.
struct Limited<R> {
    stream: R,
    left: Arc<AtomicUsize>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Limited<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.left
            .store(left.saturating_sub(read), Ordering::Relaxed);
        polled
    }
}
