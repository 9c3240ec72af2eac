//! Moves bytes between two sockets without copying them to user space, once a connection is busy.

use std::io;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::relay::copy_until;
use super::slots;

/// How often a buffer must be full before a pipe is worth its two descriptors.
const BUSY: usize = 8;
const PIPE: usize = 1 << 20;

/// Copies at first, which is all that most connections need.
pub(super) async fn splice(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    count: impl Fn(usize),
    most: usize,
) -> io::Result<()> {
    if !copy_until(&mut from, &mut to, &count, most, BUSY).await? {
        let permit = slots::pipe();
        let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        match permit.as_ref().map(|_| pipe_with(flags)) {
            Some(Ok((reader, writer))) => {
                // Fails beyond the user's limit for pipes. Then it keeps its default size.
                let _ = fcntl_setpipe_size(&writer, PIPE);
                move_all(from.as_ref(), to.as_ref(), &reader, &writer, &count).await?;
            }
            _ => {
                copy_until(&mut from, &mut to, &count, most, usize::MAX).await?;
            }
        }
    }
    to.shutdown().await
}

async fn move_all(
    from: &TcpStream,
    to: &TcpStream,
    reader: &rustix::fd::OwnedFd,
    writer: &rustix::fd::OwnedFd,
    count: &impl Fn(usize),
) -> io::Result<()> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        // The pipe is empty here, so EAGAIN can only come from the socket.
        let read = || Ok(rustix::pipe::splice(from, None, writer, None, PIPE, flags)?);
        let mut left = from.async_io(Interest::READABLE, read).await?;
        if left == 0 {
            return Ok(());
        }
        count(left);
        while left > 0 {
            let write = || Ok(rustix::pipe::splice(reader, None, to, None, left, flags)?);
            match to.async_io(Interest::WRITABLE, write).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                moved => left -= moved,
            }
        }
    }
}
