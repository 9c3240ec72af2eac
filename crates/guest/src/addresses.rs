//! Calls in a container with an address that it can't reach. They are reported, so that they are
//! recorded, and then continue. Nothing is enforced by that: the container has no interface but
//! loopback, so the kernel refuses them itself.

mod caller;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use brig_linux::mediate::Request;
use brig_linux::notify::{Answer, Listener, Notification};
use brig_wire::{Container, FromGuest, MAX_QUERY, Transport, Unreachable};
use rustix::io::Errno;

use crate::channel::Channel;
use caller::{memory_is_readable, parse, read, transport};

/// Addresses whose calls are counted. Calls to further addresses are reported one by one.
const COUNTED: usize = 1024;
/// Between two reports of counted calls.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// The kernel's limit for `sendmmsg` (`UIO_MAXIOV`).
const MESSAGES: u32 = 1024;
/// Sizes of `struct msghdr` and `struct mmsghdr`.
const MSGHDR: usize = 56;
const MMSGHDR: usize = 64;
/// Size of `struct sockaddr_in6`, the longest address that is of interest.
const ADDRESS: usize = 28;
const DNS: u16 = 53;

#[derive(Debug)]
pub(crate) struct Addresses {
    pool: Ipv4Addr,
    /// TCP ports with a listener on all addresses of the pool.
    served: Vec<u16>,
    /// Calls since the last report.
    counted: HashMap<(Transport, SocketAddr), u32>,
    reported: Instant,
    can_read_memory: bool,
}

/// An unreachable address that a call names, and the query if it is a DNS server.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    transport: Transport,
    to: SocketAddr,
    query: Vec<u8>,
}

impl Addresses {
    pub(crate) fn new(container: &Container) -> Self {
        let on_all = |listener: &&brig_wire::ListenerSpec| {
            listener.transport == Transport::Tcp
                && Ipv4Addr::from(listener.address).is_unspecified()
        };
        let served = container
            .listeners
            .iter()
            .filter(on_all)
            .map(|listener| listener.port);
        Self {
            pool: container.pool.into(),
            served: served.collect(),
            counted: HashMap::new(),
            reported: Instant::now(),
            can_read_memory: memory_is_readable(),
        }
    }

    /// The answer to a call that may name an address.
    pub(crate) fn check(
        &mut self,
        listener: &Listener,
        notification: &Notification,
        request: &Request,
        channel: &mut Channel,
    ) -> Answer {
        // Without it, calls can't be reported, but they can't lead anywhere either.
        if !self.can_read_memory {
            return Answer::Continue;
        }
        match self.destination(notification.thread, request) {
            Ok(None) => Answer::Continue,
            // What was read is the caller's only if the caller still waits.
            _ if !listener.is_pending(notification.id) => Answer::Continue,
            Ok(Some(destination)) => {
                self.report(destination, channel);
                Answer::Continue
            }
            // Refused: a process that can't be read would leave no record.
            Err(_) => {
                let transport = match request {
                    Request::Connect { .. } => Transport::Tcp,
                    _ => Transport::Udp,
                };
                channel.send(&FromGuest::Unreachable(Box::new(Unreachable {
                    transport,
                    to: None,
                    count: 1,
                    query: Vec::new(),
                })));
                Answer::Errno(Errno::ACCESS.raw_os_error())
            }
        }
    }

    /// Reports counted calls, when it is time or for the `last` time.
    pub(crate) fn flush(&mut self, channel: &mut Channel, last: bool) {
        if !last && self.reported.elapsed() < REPORT_INTERVAL {
            return;
        }
        self.reported = Instant::now();
        for ((transport, to), count) in &mut self.counted {
            let count = std::mem::take(count);
            if count > 0 {
                send(channel, (*transport, *to), count, Vec::new());
            }
        }
    }

    /// To be called when nothing runs any more.
    pub(crate) fn clear(&mut self) {
        self.counted.clear();
    }

    /// The first call with an address is reported at once, further ones are counted, so that a flood
    /// of calls is not a flood of messages. Every DNS query is reported.
    fn report(&mut self, destination: Destination, channel: &mut Channel) {
        let key = (destination.transport, destination.to);
        if destination.query.is_empty() {
            if let Some(count) = self.counted.get_mut(&key) {
                *count = count.saturating_add(1);
                return;
            }
            if self.counted.len() < COUNTED {
                self.counted.insert(key, 0);
            }
        }
        send(channel, key, 1, destination.query);
    }

    /// The unreachable address that a call names. Fails only if the caller may not be read. If its
    /// memory is not mapped, the kernel can't read the address either, and the call fails.
    fn destination(&self, thread: u32, request: &Request) -> io::Result<Option<Destination>> {
        let descriptor = match request {
            Request::Connect { descriptor, .. }
            | Request::SendTo { descriptor, .. }
            | Request::SendMessages { descriptor, .. } => *descriptor,
            _ => return Ok(None),
        };
        let Some(transport) = transport(thread, descriptor)? else {
            return Ok(None);
        };
        let to = match *request {
            Request::Connect {
                address, length, ..
            } => self.address(thread, transport, (address, length), false)?,
            Request::SendTo {
                address,
                length,
                data,
                ..
            } => {
                let to = self.address(thread, transport, (address, length), true)?;
                return to
                    .map(|to| with_query(thread, transport, to, data))
                    .transpose();
            }
            Request::SendMessages {
                messages, count, ..
            } => return self.messages(thread, transport, messages, count),
            _ => None,
        };
        Ok(to.map(|to| Destination {
            transport,
            to,
            query: Vec::new(),
        }))
    }

    /// The first of several messages with an unreachable address. The kernel stops there.
    fn messages(
        &self,
        thread: u32,
        transport: Transport,
        at: u64,
        count: Option<u32>,
    ) -> io::Result<Option<Destination>> {
        let size = match count {
            None => MSGHDR,
            Some(_) => MMSGHDR,
        };
        let count = count.unwrap_or(1).min(MESSAGES) as usize;
        for message in read(thread, at, count * size)?.chunks_exact(size) {
            let number = |from: usize| {
                let bytes = message.get(from..from + 8).and_then(|b| b.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            // The length has 32 bits, and padding.
            let length = u32::try_from(number(8) & 0xffff_ffff).unwrap_or(0);
            let name = (number(0), length);
            let Some(to) = self.address(thread, transport, name, true)? else {
                continue;
            };
            // The first `struct iovec`.
            let part = read(thread, number(16), 16)?;
            let word = |from: usize| {
                let bytes = part.get(from..from + 8).and_then(|b| b.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            return with_query(thread, transport, to, (word(0), word(8))).map(Some);
        }
        Ok(None)
    }

    /// The address at this pointer, if it is unreachable.
    fn address(
        &self,
        thread: u32,
        transport: Transport,
        (at, length): (u64, u32),
        sends: bool,
    ) -> io::Result<Option<SocketAddr>> {
        if at == 0 {
            return Ok(None);
        }
        let bytes = read(thread, at, ADDRESS.min(length as usize))?;
        let to = parse(&bytes, sends);
        Ok(to.filter(|to| self.is_unreachable(transport, *to)))
    }

    fn is_unreachable(&self, transport: Transport, to: SocketAddr) -> bool {
        match to.ip() {
            IpAddr::V4(address) if in_pool(self.pool, address) => {
                !(transport == Transport::Tcp && self.served.contains(&to.port()))
            }
            own => !(own.is_loopback() || own.is_unspecified()),
        }
    }
}

fn send(channel: &mut Channel, key: (Transport, SocketAddr), count: u32, query: Vec<u8>) {
    channel.send(&FromGuest::Unreachable(Box::new(Unreachable {
        transport: key.0,
        to: Some(key.1),
        count,
        query,
    })));
}

fn in_pool(pool: Ipv4Addr, address: Ipv4Addr) -> bool {
    const MASK: u32 = 0xfffe_0000;
    u32::from(pool) & MASK == u32::from(address) & MASK
}

/// Reads the query if the destination is a DNS server.
fn with_query(
    thread: u32,
    transport: Transport,
    to: SocketAddr,
    (data, length): (u64, u64),
) -> io::Result<Destination> {
    let query = match (transport, to.port()) {
        (Transport::Udp, DNS) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            read(thread, data, length.min(MAX_QUERY))?
        }
        _ => Vec::new(),
    };
    Ok(Destination {
        transport,
        to,
        query,
    })
}
