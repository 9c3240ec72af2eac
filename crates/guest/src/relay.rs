//! Listeners in a container. Their descriptors can't be handed to the owner, so connections are
//! relayed over the stream. The owner decides what is allowed.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_wire::{FromGuest, GUEST_CHANNEL, ListenerSpec, MAX_DATA, MAX_DATAGRAM, Transport};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};

use crate::channel::Channel;

/// Relayed connections at one time. Others wait in the backlog of the listener.
const MAX_CONNECTIONS: usize = 512;

/// Datagrams that are read at once, so that a flood does not stop everything else.
const DATAGRAMS: usize = 64;

#[derive(Debug)]
pub(crate) struct Relay {
    listeners: Vec<(Transport, OwnedFd)>,
    connections: BTreeMap<u32, Connection>,
    next: u32,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Bytes for the program that its socket has no room for yet.
    pending: VecDeque<u8>,
    /// Whether the program may send more.
    inside: bool,
    /// Whether the owner may send more.
    outside: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RelayEvent {
    Listener(usize),
    Connection(u32),
}

impl Relay {
    pub(crate) fn new(listeners: &[ListenerSpec], sockets: Vec<OwnedFd>) -> Self {
        let transports = listeners.iter().map(|listener| listener.transport);
        Self {
            listeners: transports.zip(sockets).collect(),
            connections: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn poll_fds(
        &self,
        channel: &Channel,
        takes_more: bool,
    ) -> Vec<(RelayEvent, BorrowedFd<'_>, PollFlags)> {
        let mut fds = Vec::new();
        if takes_more {
            for (index, (transport, socket)) in self.listeners.iter().enumerate() {
                if *transport == Transport::Udp || self.connections.len() < MAX_CONNECTIONS {
                    fds.push((RelayEvent::Listener(index), socket.as_fd(), PollFlags::IN));
                }
            }
        }
        for (number, connection) in &self.connections {
            let mut flags = PollFlags::empty();
            if connection.inside && takes_more && channel.room(*number) > 0 {
                flags |= PollFlags::IN;
            }
            if !connection.pending.is_empty() {
                flags |= PollFlags::OUT;
            }
            if !flags.is_empty() {
                fds.push((
                    RelayEvent::Connection(*number),
                    connection.socket.as_fd(),
                    flags,
                ));
            }
        }
        fds
    }

    pub(crate) fn handle(&mut self, event: RelayEvent, channel: &mut Channel) {
        match event {
            RelayEvent::Listener(index) => self.accept(index, channel),
            RelayEvent::Connection(number) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.read(number, channel);
                    connection.write(number, channel);
                }
                self.remove_if_closed(number);
            }
        }
    }

    /// A listener is readable.
    fn accept(&mut self, index: usize, channel: &mut Channel) {
        let Some((transport, socket)) = self.listeners.get(index) else {
            return;
        };
        let Ok(listener) = u32::try_from(index) else {
            return;
        };
        if *transport == Transport::Udp {
            let mut bytes = [0; MAX_DATAGRAM];
            // All of them: if the sender has exited, this may be the last round before its execution
            // ends.
            for _ in 0..DATAGRAMS {
                let received = rustix::net::recvfrom(socket, &mut bytes[..], RecvFlags::DONTWAIT);
                let Ok((_, length, from)) = received else {
                    return;
                };
                let from = from.and_then(|from| address(from.try_into().ok()));
                if let Some(from) = from {
                    let bytes = bytes[..length.min(MAX_DATAGRAM)].to_vec();
                    channel.send(&FromGuest::Datagram {
                        listener,
                        from,
                        bytes,
                    });
                }
            }
            return;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(connection) = rustix::net::accept_with(socket, flags) else {
            return;
        };
        // The address that the program connected to.
        let local = rustix::net::getsockname(&connection).ok();
        let Some(address) = address(local.and_then(|local| local.try_into().ok())) else {
            return;
        };
        let _ = rustix::net::sockopt::set_tcp_nodelay(&connection, true);
        let number = self.number();
        channel.send(&FromGuest::Accepted {
            listener,
            address,
            channel: number,
        });
        self.connections.insert(
            number,
            Connection {
                socket: connection,
                pending: VecDeque::new(),
                inside: true,
                outside: true,
            },
        );
    }

    /// A free channel number.
    fn number(&mut self) -> u32 {
        loop {
            let number = GUEST_CHANNEL | self.next;
            self.next = (self.next + 1) % (GUEST_CHANNEL - 1);
            if !self.connections.contains_key(&number) {
                return number;
            }
        }
    }

    /// Bytes from the owner. `false` if there is no connection with this number.
    pub(crate) fn data(&mut self, number: u32, bytes: &[u8], channel: &mut Channel) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else {
            return false;
        };
        connection.pending.extend(bytes);
        connection.write(number, channel);
        self.remove_if_closed(number);
        true
    }

    /// The owner will send nothing more.
    pub(crate) fn end(&mut self, number: u32, channel: &mut Channel) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.outside = false;
            connection.write(number, channel);
        }
        self.remove_if_closed(number);
    }

    /// The owner has closed a connection.
    pub(crate) fn drop_connection(&mut self, number: u32, channel: &mut Channel) {
        if self.connections.remove(&number).is_some() {
            channel.forget(number);
        }
    }

    /// Sends a datagram from the owner to its program.
    pub(crate) fn answer(&self, listener: u32, to: ([u8; 4], u16), bytes: &[u8]) {
        if let Some((Transport::Udp, socket)) = self.listeners.get(listener as usize) {
            let to = SocketAddrV4::new(to.0.into(), to.1);
            let _ = rustix::net::sendto(socket, bytes, SendFlags::DONTWAIT, &to);
        }
    }

    fn remove_if_closed(&mut self, number: u32) {
        let over = |connection: &Connection| {
            !connection.inside && !connection.outside && connection.pending.is_empty()
        };
        if self.connections.get(&number).is_some_and(over) {
            self.connections.remove(&number);
        }
    }
}

impl Connection {
    fn read(&mut self, number: u32, channel: &mut Channel) {
        let mut buffer = [0; MAX_DATA];
        let most = channel.room(number).min(MAX_DATA);
        if !self.inside || most == 0 {
            return;
        }
        match rustix::io::read(&self.socket, &mut buffer[..most]) {
            Ok(count @ 1..) => channel.send_data(number, &buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) => {
                self.inside = false;
                channel.send_end(number);
            }
            _ => self.lost(number, channel),
        }
    }

    fn write(&mut self, number: u32, channel: &mut Channel) {
        loop {
            let (front, _) = self.pending.as_slices();
            if front.is_empty() {
                break;
            }
            match rustix::io::write(&self.socket, front) {
                Ok(count) => {
                    self.pending.drain(..count);
                    channel.grant(number, count);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => return self.lost(number, channel),
            }
        }
        if !self.outside {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
    }

    /// The program has closed its end, or is gone. Credit is still granted for what was pending, so
    /// that the owner does not wait.
    fn lost(&mut self, number: u32, channel: &mut Channel) {
        if std::mem::take(&mut self.inside) {
            channel.send_end(number);
        }
        channel.grant(number, self.pending.len());
        self.pending.clear();
        self.outside = false;
    }
}

fn address(address: Option<SocketAddr>) -> Option<([u8; 4], u16)> {
    match address? {
        SocketAddr::V4(address) => Some((address.ip().octets(), address.port())),
        SocketAddr::V6(_) => None,
    }
}
