//! The network of the sandbox: listeners that the owner serves, and raw sockets that receive every
//! packet for another host. No interface leads out.

use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use brig_linux::net;
use brig_wire::{ListenerSpec, Network, Transport};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto};

use super::{handoff, routes};
use crate::{Failure, Step};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The kernel's memory that options of one socket may take, and the IPv4 multicast groups that it may join. No limit
/// counts what they take.
const LIMITS: [(&str, &str); 2] = [
    ("core/optmem_max", "8192"),
    ("ipv4/igmp_max_memberships", "4"),
];

/// What kind of descriptors a handed-out message contains.
const LISTENERS: u8 = b'n';
const FREE: u8 = b'f';
const SINK: u8 = b's';

pub(crate) fn open(network: &Network, out: &OwnedFd) -> Result<(), Failure> {
    limit_options()?;
    brig_linux::process::loopback_up().step("bring up loopback")?;
    if let Some(address) = network.address {
        brig_linux::process::add_loopback_address(address).step("add an address to loopback")?;
    }
    routes::add().step("add routes")?;
    hand_out(out, SINK, &sink()?)?;
    let listeners = listen_on(&network.listeners)?;
    for (listener, socket) in network.listeners.iter().zip(&listeners) {
        if listener.address == [0; 4] {
            net::set_transparent(socket).step("listen on any address")?;
        }
    }
    hand_out(out, LISTENERS, &listeners)?;
    if network.free > 0 {
        let free = (0..network.free)
            .map(|_| free())
            .collect::<Result<Vec<_>, _>>();
        hand_out(out, FREE, &free?)?;
    }
    Ok(())
}

/// Before Linux 6.8 the whole machine has one limit, which is usually 20 KiB.
fn limit_options() -> Result<(), Failure> {
    for (name, most) in LIMITS {
        match std::fs::write(format!("/proc/sys/net/{name}"), most) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done.step(format!("set {name}"))?,
        }
    }
    Ok(())
}

fn hand_out(out: &OwnedFd, what: u8, sockets: &[OwnedFd]) -> Result<(), Failure> {
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    handoff::send(out, what, &sockets)
}

/// Raw sockets that receive a copy of every packet. The owner filters them.
fn sink() -> Result<Vec<OwnedFd>, Failure> {
    let mut sockets = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        for protocol in [ipproto::TCP, ipproto::UDP] {
            match socket(family, SocketType::RAW, Some(protocol)) {
                Ok(socket) => sockets.push(socket),
                // A kernel without IPv6.
                Err(Errno::AFNOSUPPORT) if family == AddressFamily::INET6 => {}
                Err(error) => return Err(error).step("watch packets"),
            }
        }
    }
    Ok(sockets)
}

fn free() -> Result<OwnedFd, Failure> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).step("make a socket")?;
    net::set_transparent(&socket).step("listen on any address")?;
    Ok(socket)
}

fn socket(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, kind, flags, protocol)
}

pub(crate) fn listen_on(listeners: &[ListenerSpec]) -> Result<Vec<OwnedFd>, Failure> {
    let listen = |listener: &ListenerSpec| {
        listen(listener).step(format!("listen on port {}", listener.port))
    };
    listeners.iter().map(listen).collect()
}

fn listen(listener: &ListenerSpec) -> rustix::io::Result<OwnedFd> {
    let kind = match listener.transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let socket = socket(AddressFamily::INET, kind, None)?;
    let address = SocketAddrV4::new(listener.address.into(), listener.port);
    rustix::net::bind(&socket, &address)?;
    if listener.transport == Transport::Tcp {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}
