//! The way out: sockets in this network namespace that are served from outside. Nothing else here
//! leads anywhere.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use brig_wire::{Door, Network, Transport};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::handoff;
use crate::{Failure, Step};

/// Connections that wait for the outside.
const BACKLOG: i32 = 1024;

pub fn open(network: &Network, out: &OwnedFd) -> Result<(), Failure> {
    let (first, bits) = network.range;
    brig_linux::process::add_loopback_range(first, bits).step("add addresses to loopback")?;
    let doors = listen_on(&network.doors)?;
    let doors: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    handoff::send(out, b'n', &doors)
}

pub fn listen_on(doors: &[Door]) -> Result<Vec<OwnedFd>, Failure> {
    let listen = |door: &Door| listen(door).step(format!("listen on port {}", door.port));
    doors.iter().map(listen).collect()
}

fn listen(door: &Door) -> rustix::io::Result<OwnedFd> {
    let kind = match door.transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?;
    let address = SocketAddrV4::new(door.address.into(), door.port);
    rustix::net::bind(&socket, &address)?;
    if door.transport == Transport::Tcp {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}
