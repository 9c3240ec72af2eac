//! Packets to addresses outside the sandbox. Routes send them back into its network namespace, where raw
//! sockets that the guest has handed out receive a copy. Each packet is recorded first. Then the sender
//! gets an ICMP "unreachable"; or, if rules allow the connection, a listener is opened at the address, and
//! the packet is sent again.
//!
//! By hand and not with a user-mode TCP/IP stack such as `smoltcp`: the kernel's own stack serves the
//! connections, only the first packet of each is inspected here.

mod filter;
mod neighbours;
mod packet;

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brig_egress::{ListenerKind, NO_IPV6, NO_UDP, Protocol, Reason};
use brig_guest_host::network::Network;
use brig_linux::net;
use brig_sandbox::{Error, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use self::neighbours::Neighbours;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Packets that are read before other tasks get their turn. The kernel counts what it drops meanwhile.
const BATCH: usize = 64;
/// More packets than a receive buffer has room for.
const MOST: usize = 4096;

/// Restricts a listener on all addresses to loopback and the addresses that DNS hands out. Others are left to
/// the sink.
pub(crate) fn filter_listener(socket: &OwnedFd) -> Result<()> {
    net::attach_filter(socket, &filter::listener())
        .map_err(|error| Error::io("watch a listener", error))
}

/// When this is dropped, packets are no longer read.
#[derive(Debug)]
pub(crate) struct Sink {
    shared: Arc<Shared>,
    runtime: Handle,
    _reading: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    network: Network,
    sockets: Vec<Socket>,
    listeners: Mutex<Listeners>,
    neighbours: Mutex<Neighbours>,
}

#[derive(Debug)]
struct Socket {
    socket: AsyncFd<OwnedFd>,
    family: AddressFamily,
    protocol: Protocol,
    /// Drops packets that are not needed before they take room in the buffer.
    filter: Vec<net::Instruction>,
    /// Dropped packets that were recorded. The lock is also held while a packet is read and recorded, so that
    /// [`Sink::drain`] can wait for it.
    dropped: Mutex<u32>,
}

#[derive(Debug)]
struct Listeners {
    free: Vec<OwnedFd>,
    /// How many there were at the start.
    all: usize,
    opened: HashSet<SocketAddrV4>,
    /// Ports with a listener for the whole pool from the start.
    initial: Vec<u16>,
}

impl Sink {
    /// `ports` have a listener for all addresses of the pool already.
    pub(crate) fn open(
        network: Network,
        sockets: Vec<OwnedFd>,
        free: Vec<OwnedFd>,
        ports: &[u16],
    ) -> Result<Self> {
        let failed = |error| Error::io("watch packets", error);
        let sockets = sockets.into_iter().map(|socket| Socket::new(socket, ports));
        let sockets = sockets.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let shared = Arc::new(Shared {
            network,
            sockets,
            listeners: Mutex::new(Listeners {
                all: free.len(),
                free,
                opened: HashSet::new(),
                initial: ports.to_vec(),
            }),
            neighbours: Mutex::default(),
        });
        let mut reading = JoinSet::new();
        for index in 0..shared.sockets.len() {
            reading.spawn(watch(Arc::clone(&shared), index));
        }
        Ok(Self {
            shared,
            runtime: Handle::current(),
            _reading: reading,
        })
    }

    /// Memory of the kernel for the IPv6 addresses that packets were sent to, which no control group counts. More than
    /// `limit` only if it is certain, where the kernel's own number can be read.
    pub(crate) fn neighbour_bytes(&self, limit: u64) -> u64 {
        let sockets = self.shared.sockets.iter();
        let sockets = sockets.filter(|socket| socket.family == AddressFamily::INET6);
        let unread = sockets.map(|socket| u64::from(net::dropped(&socket.socket).unwrap_or(0)));
        lock(&self.shared.neighbours).bytes(unread.sum(), limit)
    }

    /// When this returns, all packets that were sent before are recorded.
    pub(crate) fn drain(&self) {
        let _here = self.runtime.enter();
        for socket in &self.shared.sockets {
            self.shared.read(socket, MOST);
            socket.record_dropped(&self.shared.network);
        }
    }
}

async fn watch(shared: Arc<Shared>, index: usize) {
    let socket = &shared.sockets[index];
    // Attaching takes milliseconds, so it is done here and not before the start. Until then, unwanted packets
    // are skipped when they are parsed.
    let _ = net::attach_filter(&socket.socket, &socket.filter);
    loop {
        let Ok(mut ready) = socket.socket.readable().await else {
            return;
        };
        if shared.read(socket, BATCH) < BATCH {
            ready.clear_ready();
        } else {
            tokio::task::yield_now().await;
        }
    }
}

impl Socket {
    /// The guest is not trusted: the socket must be a raw one of a known protocol.
    fn new(socket: OwnedFd, ports: &[u16]) -> io::Result<Self> {
        if sockopt::socket_type(&socket)? != SocketType::RAW {
            return Err(io::Error::other(
                "the guest passed an unexpected descriptor",
            ));
        }
        let family = sockopt::socket_domain(&socket)?;
        let (protocol, filter) = match (family, sockopt::socket_protocol(&socket)?) {
            (AddressFamily::INET, Some(ipproto::TCP)) => (Protocol::Tcp, filter::tcp4(ports)),
            (AddressFamily::INET, Some(ipproto::UDP)) => (Protocol::Udp, filter::udp4()),
            (AddressFamily::INET6, Some(ipproto::TCP)) => (Protocol::Tcp, filter::tcp6()),
            (AddressFamily::INET6, Some(ipproto::UDP)) => (Protocol::Udp, filter::udp6()),
            _ => {
                return Err(io::Error::other(
                    "the guest passed an unexpected descriptor",
                ));
            }
        };
        if family == AddressFamily::INET6 {
            net::receive_destination(&socket)?;
        } else {
            net::set_header_included(&socket)?;
        }
        Ok(Self {
            dropped: Mutex::new(0),
            socket: net::register(socket)?,
            family,
            protocol,
            filter,
        })
    }

    fn record_dropped(&self, network: &Network) {
        let mut recorded = lock(&self.dropped);
        let dropped = net::dropped(&self.socket).unwrap_or(*recorded);
        if dropped > *recorded {
            let more = u64::from(dropped - *recorded);
            network.gateway().packets_dropped(more, self.protocol);
            *recorded = dropped;
        }
    }

    /// Never blocks, even if the guest has kept a copy of the socket and made it blocking.
    fn send(&self, to: Ipv4Addr, packet: &[u8]) {
        let to = SocketAddrV4::new(to, 0);
        let _ = rustix::net::sendto(&self.socket, packet, SendFlags::DONTWAIT, &to);
    }
}

impl Shared {
    /// Reads up to `most` packets, and returns how many there were.
    fn read(&self, socket: &Socket, most: usize) -> usize {
        let _alone = lock(&socket.dropped);
        let mut buffer = [0; 1024];
        for count in 0..most {
            let packet = if socket.family == AddressFamily::INET6 {
                match net::receive_ipv6(&socket.socket, &mut buffer) {
                    Ok((length, Some(to))) => {
                        lock(&self.neighbours).note(to);
                        packet::ipv6(&buffer[..length], to, socket.protocol)
                    }
                    Ok((_, None)) => None,
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => None,
                    Err(_) => return count,
                }
            } else {
                match rustix::net::recv(&socket.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                    Ok((length, _)) => {
                        self.ipv4(socket, &buffer[..length.min(1024)]);
                        None
                    }
                    Err(Errno::INTR) => None,
                    Err(_) => return count,
                }
            };
            // For IPv6, the kernel itself answers "unreachable".
            if let Some(packet) = packet {
                let refused = || Err(Reason::Protocol(NO_IPV6.into()));
                self.sent(&packet, socket.protocol, refused);
            }
        }
        most
    }

    fn ipv4(&self, socket: &Socket, bytes: &[u8]) {
        let Some(packet) = packet::ipv4(bytes, socket.protocol) else {
            return;
        };
        let SocketAddr::V4(to) = packet.to else {
            return;
        };
        let tcp = socket.protocol == Protocol::Tcp;
        if tcp && lock(&self.listeners).has(to) {
            return;
        }
        let listen = || match tcp {
            true => self.listen(to),
            false => Err(Reason::Protocol(NO_UDP.into())),
        };
        let answer = match self.sent(&packet, socket.protocol, listen) {
            true => packet::retransmission(bytes),
            false => packet::unreachable(bytes),
        };
        if let Some((to, answer)) = answer {
            socket.send(to, &answer);
        }
    }

    fn sent(
        &self,
        packet: &packet::Packet<'_>,
        protocol: Protocol,
        listen: impl FnOnce() -> std::result::Result<(), Reason>,
    ) -> bool {
        const DNS: u16 = 53;
        let gateway = self.network.gateway();
        if protocol == Protocol::Udp && packet.to.port() == DNS {
            gateway.foreign_dns_query(packet.payload);
        }
        gateway.packet_sent(packet.to, protocol, listen)
    }

    fn listen(&self, to: SocketAddrV4) -> std::result::Result<(), Reason> {
        let mut listeners = lock(&self.listeners);
        let (socket, at) = listeners.bind(to)?;
        rustix::net::listen(&socket, BACKLOG)
            .map_err(|error| Reason::Unreachable(error.to_string()))?;
        self.network
            .listen(socket, ListenerKind::Transparent)
            .map_err(|error| Reason::Unreachable(error.to_string()))?;
        listeners.opened.insert(at);
        Ok(())
    }
}

impl Listeners {
    fn has(&self, to: SocketAddrV4) -> bool {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, to.port());
        let initial = filter::in_pool(*to.ip()) && self.initial.contains(&to.port());
        initial || self.opened.contains(&to) || self.opened.contains(&any)
    }

    /// On that address alone, so that a program can still use the port on its own addresses. When half of the
    /// sockets are used, on every address, so that one socket serves all hosts with this port.
    fn bind(&mut self, to: SocketAddrV4) -> std::result::Result<(OwnedFd, SocketAddrV4), Reason> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, to.port());
        let at = if self.free.len() * 2 > self.all {
            to
        } else {
            any
        };
        let socket = self.free.pop();
        let socket = socket.ok_or(Reason::Limit(
            "no more listeners can be opened in the sandbox; use the proxy",
        ))?;
        let bound = rustix::net::bind(&socket, &at).map(|()| at).or_else(|_| {
            rustix::net::bind(&socket, &to)?;
            Ok(to)
        });
        match bound {
            Ok(at) => Ok((socket, at)),
            Err(error) => {
                self.free.push(socket);
                let error: Errno = error;
                let why = format!("no listener in the sandbox ({error}); use the proxy");
                Err(Reason::Unreachable(why))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
