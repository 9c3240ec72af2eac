//! Socket options that `rustix` lacks, and packets with their destination address.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_int, c_void, socklen_t};

fn set<T>(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe a value that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `IP_TRANSPARENT`: the socket may listen on addresses that are not local, and answer from them.
pub fn set_transparent(socket: impl AsFd) -> io::Result<()> {
    const ON: c_int = 1;
    set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_TRANSPARENT, &ON)
}

/// `IP_HDRINCL`: packets that are sent over a raw IPv4 socket contain their IP header.
pub fn set_header_included(socket: impl AsFd) -> io::Result<()> {
    const ON: c_int = 1;
    set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_HDRINCL, &ON)
}

/// `IPV6_RECVPKTINFO`: [`receive_ipv6`] returns the destination address of a packet.
pub fn receive_destination(socket: impl AsFd) -> io::Result<()> {
    const ON: c_int = 1;
    let name = libc::IPV6_RECVPKTINFO;
    set(socket.as_fd(), libc::IPPROTO_IPV6, name, &ON)
}

/// One instruction of a classic packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub value: u32,
}

/// The socket receives only what the filter accepts.
pub fn attach_filter(socket: impl AsFd, filter: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = filter
        .iter()
        .map(|instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_true,
            jf: instruction.jump_false,
            k: instruction.value,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    let name = libc::SO_ATTACH_FILTER;
    set(socket.as_fd(), libc::SOL_SOCKET, name, &program)
}

/// How many packets were dropped because the receive buffer was full.
pub fn dropped(socket: impl AsFd) -> io::Result<u32> {
    // The index of the counter in `SO_MEMINFO`.
    const DROPS: usize = 8;
    let mut numbers = [0u32; DROPS + 1];
    let mut length = size_of_val(&numbers) as socklen_t;
    // SAFETY: the pointer and the length describe a local that outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(numbers[DROPS])
    }
}

/// Receives from an IPv6 socket after [`receive_destination`]: the length of the packet and its
/// destination, if the kernel reports it. Never blocks.
pub fn receive_ipv6(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Ipv6Addr>)> {
    // Larger than one header with the address, and aligned like one.
    let mut control = [0u64; 16];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero is a valid `msghdr`; its pointers are to locals and to `buffer`, with their
    // lengths. The kernel's macros read headers only within the length that was filled in, and an
    // `in6_pktinfo` is read where its header says that there is one.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_DONTWAIT;
        let count = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags);
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut destination = None;
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let wanted = libc::CMSG_LEN(size_of::<libc::in6_pktinfo>() as u32) as usize;
            if (*header).cmsg_level == libc::IPPROTO_IPV6
                && (*header).cmsg_type == libc::IPV6_PKTINFO
                && (*header).cmsg_len as usize >= wanted
            {
                let info = libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>();
                let info = info.read_unaligned();
                destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok((count as usize, destination))
    }
}

/// Registers a socket with the async runtime.
#[cfg(feature = "async")]
pub fn register(
    socket: std::os::fd::OwnedFd,
) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and it is not taken
    // out before it is deregistered.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(io::Error::from)
}
