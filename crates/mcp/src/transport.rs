//! One client on a pair of streams, from its first byte to the last process that it started.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::Setup;
use crate::server::Server;

/// The longest message. A file that is written has to fit in, as base64.
const LONGEST: usize = 16 * 1024 * 1024;
/// How long calls may still run when the client has closed its stream.
const GRACE: Duration = Duration::from_secs(1);
/// How long is waited for calls to end that were cancelled.
const ENDING: Duration = Duration::from_secs(15);
/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(15);

/// Why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its stream.
    Closed,
    /// It was asked to stop.
    Stopped,
}

pub(crate) async fn serve(
    setup: Setup,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
) -> Result<Ended, io::Error> {
    let idle = setup.idle;
    // Cancelled when the client has gone, too.
    let end = stop.child_token();
    let server = Arc::new(Server::new(setup, end.clone()));
    let gone = CancellationToken::new();
    let read = Watched {
        read,
        gone: gone.clone(),
    };
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(LONGEST);
    let helpers = [
        tokio::spawn(end_after(gone, end.clone())),
        tokio::spawn(sweep(server.clone(), idle)),
    ];
    let served = match serve_server_with_ct(server.clone(), transport, stop.child_token()).await {
        Ok(running) => tokio::select! {
            ended = running.waiting() => ended.map(drop).map_err(io::Error::other),
            // A client that reads nothing keeps the last answer from being written.
            () = long_after(&end) => Ok(()),
        },
        // It never said anything, or not any more.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    };
    end.cancel();
    server.tracker.close();
    // Sandboxes end with this process, whatever happens.
    let _ = tokio::time::timeout(ENDING, server.tracker.wait()).await;
    server.sessions.end_all().await;
    helpers.iter().for_each(tokio::task::JoinHandle::abort);
    served.map(|()| match stop.is_cancelled() {
        true => Ended::Stopped,
        false => Ended::Closed,
    })
}

async fn long_after(end: &CancellationToken) {
    end.cancelled().await;
    tokio::time::sleep(ENDING).await;
}

async fn end_after(gone: CancellationToken, end: CancellationToken) {
    gone.cancelled().await;
    tokio::time::sleep(GRACE).await;
    end.cancel();
}

async fn sweep(server: Arc<Server>, idle: Duration) {
    loop {
        tokio::time::sleep(SWEEP.min(idle)).await;
        server.sessions.end_idle(idle).await;
    }
}

/// Tells when the stream has ended.
struct Watched<R> {
    read: R,
    gone: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let read = Pin::new(&mut self.read).poll_read(context, buffer);
        let ended = match &read {
            Poll::Ready(Ok(())) => room > 0 && buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended {
            self.gone.cancel();
        }
        read
    }
}
