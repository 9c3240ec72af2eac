//! Streams whose first bytes were inspected, or whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::meter::Meter;

/// Reads return the inspected bytes first.
#[derive(Debug)]
pub(super) struct Prefixed<S> {
    prefix: BytesMut,
    inner: S,
}

impl<S> Prefixed<S> {
    pub(super) fn new(inner: S, prefix: impl Into<BytesMut>) -> Self {
        Self {
            prefix: prefix.into(),
            inner,
        }
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Puts back bytes that were read too early.
    pub(super) fn unread(mut self, bytes: &[u8]) -> Self {
        let mut all = BytesMut::from(bytes);
        all.extend_from_slice(&self.prefix);
        self.prefix = all;
        self
    }

    pub(super) fn take_prefix(&mut self) -> BytesMut {
        std::mem::take(&mut self.prefix)
    }

    pub(super) fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    pub(super) fn into_inner(self) -> S {
        self.inner
    }

    /// Drops bytes that were processed.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.prefix.advance(bytes.min(self.prefix.len()));
    }
}

impl<S: AsyncRead + Unpin> Prefixed<S> {
    /// Reads more bytes to inspect. Zero at the end.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.prefix.reserve(2048);
        self.inner.read_buf(&mut self.prefix).await
    }

    /// Reads and drops.
    pub(super) async fn drain(&mut self) -> io::Result<usize> {
        self.prefix.clear();
        self.fill().await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        let take = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix.split_to(take));
        if self.prefix.is_empty() {
            self.prefix = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Counts sent and received bytes.
#[derive(Debug)]
pub(super) struct Metered<S> {
    pub inner: S,
    pub meter: Arc<Meter>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.meter.received(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.meter.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
