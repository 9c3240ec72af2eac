//! Reading streams of programs that may write without end.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads everything, up to a size. `None` if there is more.
pub(crate) async fn read_all(
    stream: impl AsyncRead + Unpin,
    largest: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(largest).unwrap_or(u64::MAX);
    let mut limited = stream.take(limit.saturating_add(1));
    limited.read_to_end(&mut bytes).await?;
    Ok((bytes.len() <= largest).then_some(bytes))
}

/// Reads to the end, and keeps the beginning.
pub(crate) async fn read_start(mut stream: impl AsyncRead + Unpin, kept: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut part).await {
        let room = kept.saturating_sub(bytes.len()).min(length);
        bytes.extend_from_slice(&part[..room]);
    }
    bytes
}
