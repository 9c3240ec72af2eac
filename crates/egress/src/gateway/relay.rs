//! Moves bytes both ways until one side is done, the rules change, or nothing passes any more.

use std::any::Any;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;

use super::Stream;
use super::meter::{Meter, Ticket};
use super::splice::splice;
use super::stream::Prefixed;
use crate::decision::Reason;

/// Memory for one direction: little at first, more for whoever fills it.
const FIRST: usize = 4 * 1024;
const MOST: usize = 64 * 1024;

pub(super) async fn relay<S: Stream, U: Stream>(client: Prefixed<S>, upstream: U, ticket: &Ticket) {
    let meter = &ticket.meter;
    let limits = &ticket.gateway.shared.limits;
    let most = MOST.min(ticket.gateway.share());
    tokio::select! {
        _ = both(client, upstream, meter, most) => {}
        () = ticket.revoked() => ticket.ends(Reason::Revoked),
        () = meter.idle(limits.idle) => ticket.ends(Reason::Limit("nothing passed for too long")),
    }
}

async fn both<S: Stream, U: Stream>(
    mut client: Prefixed<S>,
    mut upstream: U,
    meter: &Meter,
    most: usize,
) -> io::Result<()> {
    let looked_at = client.take_prefix();
    upstream.write_all(&looked_at).await?;
    meter.sent(looked_at.len());
    drop(looked_at);
    let (sent, received) = (|bytes| meter.sent(bytes), |bytes| meter.received(bytes));
    let sockets = (
        (client.inner_mut() as &mut dyn Any).downcast_mut::<TcpStream>(),
        (&mut upstream as &mut dyn Any).downcast_mut::<TcpStream>(),
    );
    // Sockets can be joined in the kernel; a relayed stream can't.
    if let (Some(client), Some(upstream)) = sockets {
        let (from_client, to_client) = client.split();
        let (from_upstream, to_upstream) = upstream.split();
        tokio::try_join!(
            splice(from_client, to_upstream, sent, most),
            splice(from_upstream, to_client, received, most),
        )?;
        return Ok(());
    }
    let (from_client, to_client) = split(client);
    let (from_upstream, to_upstream) = split(upstream);
    tokio::try_join!(
        copy(from_client, to_upstream, sent, most),
        copy(from_upstream, to_client, received, most),
    )?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: impl Fn(usize),
    most: usize,
) -> io::Result<()> {
    copy_until(&mut from, &mut to, &count, most, usize::MAX).await?;
    to.shutdown().await
}

/// Copies to the end, or until a buffer of `most` bytes has been filled that often. Whether it was
/// the end.
pub(super) async fn copy_until(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: &impl Fn(usize),
    most: usize,
    filled: usize,
) -> io::Result<bool> {
    let mut buffer = vec![0; FIRST.min(most)];
    let mut full = 0;
    while full < filled {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(true);
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
        count(length);
        if length == most {
            full += 1;
        } else if length == buffer.len() {
            buffer.resize(most.min(length * 4), 0);
        }
    }
    Ok(false)
}
