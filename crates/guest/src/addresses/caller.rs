//! Socket addresses in the memory of a caller, read as the kernel reads them.
//!
//! By hand: `libc`'s structures would have to be filled from untrusted bytes with unsafe code.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use brig_linux::notify::read_memory;
use brig_wire::Transport;
use rustix::io::Errno;

/// Parses an address as the kernel does: for `sendto`, AF_UNSPEC means IPv4; for `connect`, it means to
/// disconnect.
pub(super) fn parse(bytes: &[u8], sends: bool) -> Option<SocketAddr> {
    const UNSPECIFIED: u16 = 0;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip: IpAddr = match family {
        UNSPECIFIED if !sends => return None,
        INET | UNSPECIFIED => {
            bytes.get(..16)?;
            let octets: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Ipv4Addr::from(octets).into()
        }
        INET6 => {
            let octets: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The protocol of a socket. `None` if it is neither TCP nor UDP, or no socket. By an extended
/// attribute, because the guest has no capability to duplicate the descriptor.
pub(super) fn transport(thread: u32, descriptor: i32) -> io::Result<Option<Transport>> {
    let mut name = [0; 32];
    let path = format!("/proc/{thread}/fd/{descriptor}");
    match rustix::fs::getxattr(path, "system.sockprotoname", &mut name[..]) {
        Ok(length) => {
            let name = name.get(..length).unwrap_or_default();
            let name = name.strip_suffix(&[0]).unwrap_or(name);
            Ok(match name {
                b"TCP" | b"TCPv6" => Some(Transport::Tcp),
                b"UDP" | b"UDPv6" => Some(Transport::Udp),
                _ => None,
            })
        }
        Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Whether processes without capabilities can read each other's memory. Yama forbids it from 2 on.
/// Without Yama there is no such file.
pub(super) fn memory_is_readable() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|text| text.trim().parse::<u8>().ok());
    scope.is_none_or(|scope| scope < 2)
}

/// Memory of the caller, as much as is mapped. Fails only without permission.
pub(super) fn read(thread: u32, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = match read_memory(thread, at, &mut bytes) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        Err(_) => 0,
    };
    bytes.truncate(read);
    Ok(bytes)
}
