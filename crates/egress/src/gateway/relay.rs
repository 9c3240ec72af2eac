//! Copies bytes in both directions until one side is done, the rules no longer allow it, or the
//! connection is idle.
//!
//! Not `tokio::io::copy_bidirectional`: its buffers have a fixed size, and code in the sandbox decides how
//! many connections there are.

use std::any::Any;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;

use super::Stream;
use super::meter::{Meter, Ticket};
use super::splice::splice;
use super::stream::Prefixed;
use crate::decision::Reason;

/// The buffer of one direction: small at first, larger if it is filled.
const FIRST: usize = 4 * 1024;
const MOST: usize = 64 * 1024;

pub(super) const IDLE: &str = "no data for too long";

pub(super) async fn relay<S: Stream, U: Stream>(client: Prefixed<S>, upstream: U, ticket: &Ticket) {
    relay_counting(client, upstream, ticket, &ticket.meter).await;
}

/// The same, to a stream that counts its bytes itself.
pub(super) async fn relay_metered<S: Stream, U: Stream>(
    client: Prefixed<S>,
    upstream: U,
    ticket: &Ticket,
) {
    relay_counting(client, upstream, ticket, &Meter::new()).await;
}

async fn relay_counting<S: Stream, U: Stream>(
    client: Prefixed<S>,
    upstream: U,
    ticket: &Ticket,
    meter: &Meter,
) {
    let limits = &ticket.gateway.shared.limits;
    let most = MOST.min(ticket.gateway.share());
    tokio::select! {
        _ = both(client, upstream, meter, most) => {}
        () = ticket.revoked() => ticket.ends(Reason::Revoked),
        () = ticket.meter.idle(limits.idle) => ticket.ends(Reason::Limit(IDLE)),
    }
}

async fn both<S: Stream, U: Stream>(
    mut client: Prefixed<S>,
    mut upstream: U,
    meter: &Meter,
    most: usize,
) -> io::Result<()> {
    let inspected = client.take_prefix();
    upstream.write_all(&inspected).await?;
    meter.sent(inspected.len());
    drop(inspected);
    let (sent, received) = (|bytes| meter.sent(bytes), |bytes| meter.received(bytes));
    let sockets = (
        (client.inner_mut() as &mut dyn Any).downcast_mut::<TcpStream>(),
        (&mut upstream as &mut dyn Any).downcast_mut::<TcpStream>(),
    );
    // Between two sockets the kernel can move the bytes.
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

/// Copies to the end, or until a buffer of `most` bytes was full `filled` times. Returns whether it was
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
