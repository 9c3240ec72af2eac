//! Limits for what the kernel does not limit per sandbox: netlink sockets, whose receive buffers are
//! not charged to a control group, and seccomp filters, whose compiled code shares one budget
//! (`bpf_jit_limit`) on the whole machine.

use brig_linux::notify::{Answer, Listener};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType};

/// Open netlink sockets of a sandbox. A C library opens one for a moment.
const NETLINK: usize = 32;
/// Filters that the programs of one execution may install together.
const FILTERS: u32 = 1024;

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    filters: u32,
}

impl Quotas {
    /// One more filter. Its content does not matter: filters only restrict.
    pub(crate) fn filter(&mut self) -> Answer {
        if self.filters >= FILTERS {
            return Answer::Errno(Errno::NOMEM.raw_os_error());
        }
        self.filters += 1;
        Answer::Continue
    }
}

/// Creates a netlink socket for a caller, if there are not too many.
pub(crate) fn netlink(listener: &Listener, id: u64, kind: i32, protocol: i32) {
    let created = create(kind, protocol);
    let given = created.and_then(|(socket, close)| {
        let given = listener.add_fd(id, socket, close);
        given.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    if let Err(error) = given {
        // Fails if the caller is gone.
        let _ = listener.answer(id, Answer::Errno(error.raw_os_error()));
    }
}

fn create(kind: i32, protocol: i32) -> Result<(std::os::fd::OwnedFd, bool), Errno> {
    const TYPE: u32 = 0xf;
    let kind = kind.cast_unsigned();
    let flags = SocketFlags::from_bits(kind & !TYPE).ok_or(Errno::INVAL)?;
    let kind = SocketType::from_raw(kind & TYPE);
    // NETLINK_ROUTE, which C libraries use to list addresses and links.
    if protocol != 0 || !matches!(kind, SocketType::RAW | SocketType::DGRAM) {
        return Err(Errno::AFNOSUPPORT);
    }
    if open_sockets()? >= NETLINK {
        return Err(Errno::MFILE);
    }
    let protocol = RawProtocol::new(0).map(Protocol::from_raw);
    let made = flags | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, made, protocol)?;
    Ok((socket, flags.contains(SocketFlags::CLOEXEC)))
}

/// The kernel's count for this network namespace. /proc/net/netlink would list only bound sockets.
fn open_sockets() -> Result<usize, Errno> {
    let list = std::fs::read_to_string("/proc/self/net/protocols").map_err(|_| Errno::ACCESS)?;
    let count = list.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.next()? == "NETLINK").then(|| fields.nth(1)?.parse().ok())?
    });
    count.ok_or(Errno::ACCESS)
}
