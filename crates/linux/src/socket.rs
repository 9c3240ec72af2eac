//! Sockets of others: taken, and connected to an address that was copied before.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The longest address that the kernel takes.
pub const LONGEST_ADDRESS: usize = 128;

/// Connects to an address as it lies in memory, of whatever family.
pub fn connect(socket: impl AsFd, address: &[u8]) -> io::Result<()> {
    if address.len() > LONGEST_ADDRESS {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the kernel reads no more than the given length of a slice that outlives the call.
    let result = unsafe {
        libc::connect(
            socket.as_fd().as_raw_fd(),
            address.as_ptr().cast(),
            address.len() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
