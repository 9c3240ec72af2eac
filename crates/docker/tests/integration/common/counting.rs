//! A socket in front of the engine's that counts bytes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    to_engine: Arc<AtomicU64>,
    from_engine: Arc<AtomicU64>,
}

impl Counts {
    /// Serves a socket.
    pub(crate) fn serve(engine: &Path, socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let counts = Self::default();
        let (engine, served) = (engine.to_owned(), counts.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let engine = UnixStream::connect(&engine).await.expect("the engine");
                let (from_client, to_client) = client.into_split();
                let (from_engine, to_engine) = engine.into_split();
                tokio::spawn(copy(from_client, to_engine, served.to_engine.clone()));
                tokio::spawn(copy(from_engine, to_client, served.from_engine.clone()));
            }
        });
        counts
    }

    /// How many bytes went to the engine and came from it since the last call.
    pub(crate) fn take(&self) -> (u64, u64) {
        (
            self.to_engine.swap(0, Ordering::SeqCst),
            self.from_engine.swap(0, Ordering::SeqCst),
        )
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
