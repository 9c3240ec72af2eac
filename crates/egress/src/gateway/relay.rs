//! Moves bytes both ways until one side is done, the rules change, or nothing passes any more.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use super::Stream;
use super::meter::Ticket;
use crate::decision::Reason;

/// Memory for one direction: little at first, more for whoever fills it.
const FIRST: usize = 4 * 1024;
const MOST: usize = 256 * 1024;

pub(super) async fn relay<C: Stream, U: Stream>(client: C, upstream: U, ticket: &Ticket) {
    let meter = &ticket.meter;
    let (from_client, to_client) = split(client);
    let (from_upstream, to_upstream) = split(upstream);
    let both = async {
        tokio::try_join!(
            copy(from_client, to_upstream, |bytes| meter.sent(bytes)),
            copy(from_upstream, to_client, |bytes| meter.received(bytes)),
        )
    };
    let limits = &ticket.gateway.shared.limits;
    tokio::select! {
        _ = both => {}
        () = ticket.revoked() => ticket.ends(Reason::Revoked),
        () = meter.idle(limits.idle) => ticket.ends(Reason::Limit("nothing passed for too long")),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: impl Fn(usize),
) -> io::Result<()> {
    let mut buffer = vec![0; FIRST];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
        count(length);
        if length == buffer.len() && length < MOST {
            buffer.resize(length * 4, 0);
        }
    }
}
