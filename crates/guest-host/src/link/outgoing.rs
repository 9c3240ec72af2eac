//! Frames that wait to be sent to the guest. A frame is always sent completely, even if its sender is
//! cancelled: after half a frame, the guest could not read the rest of the stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// Only a guest that does not read lets more than this wait.
const MOST: usize = 64 * 1024 * 1024;

pub(super) struct Outgoing {
    state: Mutex<State>,
    /// Notified when something waits.
    work: Notify,
}

struct State {
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    /// What the stream did not accept at once. Bounded by the credit of the channels, and by [`MOST`] for a
    /// guest that never reads its credit.
    waiting: Vec<u8>,
    sent: usize,
    failed: bool,
}

impl Outgoing {
    pub(super) fn new(stream: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        let state = State {
            stream,
            waiting: Vec::new(),
            sent: 0,
            failed: false,
        };
        Self {
            state: Mutex::new(state),
            work: Notify::new(),
        }
    }

    /// Never blocks: what can't be sent at once is sent later, in order.
    pub(super) fn push(&self, frame: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = frame;
        if state.waiting.is_empty() && !state.failed {
            let mut nobody = Context::from_waker(Waker::noop());
            while !rest.is_empty() {
                match state.write(&mut nobody, rest) {
                    Poll::Ready(count) => rest = &rest[count?..],
                    Poll::Pending => break,
                }
            }
        }
        if state.waiting.len() + rest.len() > MOST {
            state.failed = true;
        }
        if state.failed {
            state.waiting = Vec::new();
            state.sent = 0;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !rest.is_empty() {
            state.waiting.extend_from_slice(rest);
            self.work.notify_one();
        }
        Ok(())
    }

    /// Sends what waits, until the stream fails.
    pub(super) async fn drain(&self) {
        loop {
            self.work.notified().await;
            let drained = poll_fn(|context| {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.drain(context)
            });
            if drained.await.is_err() {
                return;
            }
        }
    }
}

impl State {
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.waiting.len() {
            let waiting = std::mem::take(&mut self.waiting);
            let written = self.write(context, &waiting[self.sent..]);
            self.waiting = waiting;
            match written {
                Poll::Ready(count) => self.sent += count?,
                Poll::Pending => {
                    // The buffer may never be empty. Sent bytes must not pile up.
                    if self.sent > brig_wire::MAX_DATA {
                        self.waiting.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Poll::Pending;
                }
            }
        }
        self.waiting.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    fn write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            other => other,
        };
        self.failed |= matches!(written, Poll::Ready(Err(_)));
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts nothing.
    struct Full;

    impl AsyncWrite for Full {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_guest_that_never_reads_is_given_up() {
        let outgoing = Outgoing::new(Box::new(Full));
        let frame = vec![0; 1024 * 1024];
        let taken = (0..100)
            .take_while(|_| outgoing.push(&frame).is_ok())
            .count();
        assert_eq!(taken, MOST / frame.len());
        assert!(outgoing.push(b"x").is_err());
        let state = outgoing.state.lock().unwrap();
        assert_eq!(state.waiting.capacity(), 0);
    }

    #[tokio::test]
    async fn frames_come_out_whole_and_in_order() {
        let (ours, mut theirs) = tokio::io::duplex(1000);
        let outgoing = std::sync::Arc::new(Outgoing::new(Box::new(ours)));
        let draining = std::sync::Arc::clone(&outgoing);
        let drain = tokio::spawn(async move { draining.drain().await });
        let mut expected = Vec::new();
        let mut got = Vec::new();
        for number in 0..200u32 {
            let frame = number.to_le_bytes().repeat(500);
            outgoing.push(&frame).unwrap();
            expected.extend(frame);
            let mut piece = [0; 1500];
            let count = tokio::io::AsyncReadExt::read(&mut theirs, &mut piece)
                .await
                .unwrap();
            got.extend_from_slice(&piece[..count]);
        }
        while got.len() < expected.len() {
            let mut piece = [0; 1500];
            let count = tokio::io::AsyncReadExt::read(&mut theirs, &mut piece)
                .await
                .unwrap();
            got.extend_from_slice(&piece[..count]);
        }
        assert!(got == expected);
        drain.abort();
    }
}
