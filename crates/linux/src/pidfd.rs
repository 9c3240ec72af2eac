//! Waiting for a process without blocking a thread.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for the end of a child and reaps it. One that somebody else has reaped has ended too.
pub async fn reap(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let own: OwnedFd = pidfd.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` always names the same open descriptor until it is dropped, and it is
    // dropped with its registration.
    let watched = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }
        .map_err(io::Error::from)?;
    let _ready = watched.readable().await?;
    match rustix::process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED) {
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
