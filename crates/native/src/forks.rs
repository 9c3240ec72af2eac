//! For programs that fork. An instance ends when the last copy of its stream is closed, and a child that a program
//! forks, without executing another one, has copies of all streams.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// Each with the inode of its socket: a number may belong to something else by now.
static STREAMS: Mutex<Vec<(RawFd, u64)>> = Mutex::new(Vec::new());

/// The streams of this process's instances. In a child right after a fork these are copies: it should close them, so
/// that they don't outlive the parent. Empty while another thread starts an instance.
pub fn owner_streams() -> Vec<RawFd> {
    let Ok(streams) = STREAMS.try_lock() else {
        return Vec::new();
    };
    let open = streams.iter().filter(|stream| is_open(stream));
    open.map(|(descriptor, _)| *descriptor).collect()
}

pub(crate) fn remember(stream: &UnixStream) {
    let Some(inode) = inode(stream.as_raw_fd()) else {
        return;
    };
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.retain(is_open);
    streams.push((stream.as_raw_fd(), inode));
}

fn is_open((descriptor, known): &(RawFd, u64)) -> bool {
    inode(*descriptor) == Some(*known)
}

/// Of the socket behind a descriptor, if it is one.
fn inode(descriptor: RawFd) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let text = link.to_str()?.strip_prefix("socket:[")?;
    text.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_still_open_is_listed() {
        let (kept, _other) = UnixStream::pair().expect("a pair");
        remember(&kept);
        assert!(owner_streams().contains(&kept.as_raw_fd()));
        let number = kept.as_raw_fd();
        drop(kept);
        // Whatever has the number now, it is not the stream.
        assert!(!owner_streams().contains(&number));
    }
}
