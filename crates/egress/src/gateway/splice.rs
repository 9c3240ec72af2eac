//! Moves bytes between two sockets without copying them, once there are many.

use std::io;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::place;
use super::relay::copy_until;

/// How often a buffer must have been full before a pipe is worth its two descriptors.
const BUSY: usize = 8;
const PIPE: usize = 1 << 20;

/// Like copying. Most connections never carry enough to get beyond that.
pub(super) async fn splice(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    count: impl Fn(usize),
    most: usize,
) -> io::Result<()> {
    if !copy_until(&mut from, &mut to, &count, most, BUSY).await? {
        let room = place::pipe();
        let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        match room.as_ref().map(|_| pipe_with(flags)) {
            Some(Ok((reader, writer))) => {
                // Without the right to a larger one, it stays as it is.
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
        // The pipe is empty here, so it is the socket that has nothing if this would block.
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
