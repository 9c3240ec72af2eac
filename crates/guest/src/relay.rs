//! Doors whose visitors are relayed over the stream, where descriptors can't be handed out. What
//! they want is decided outside.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_wire::{Door, FromGuest, GUEST_CHANNEL, MAX_DATA, MAX_DATAGRAM, Transport};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};

use crate::channel::Channel;

/// Visitors at one time; the next one waits at the door.
const MOST: usize = 512;

#[derive(Debug)]
pub struct Relay {
    doors: Vec<(Transport, OwnedFd)>,
    visitors: BTreeMap<u32, Visitor>,
    next: u32,
}

#[derive(Debug)]
struct Visitor {
    socket: OwnedFd,
    /// On its way to the program.
    pending: VecDeque<u8>,
    /// Whether more may come, from inside and from outside.
    inside: bool,
    outside: bool,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    Door(usize),
    Visitor(u32),
}

impl Relay {
    pub fn new(doors: &[Door], sockets: Vec<OwnedFd>) -> Self {
        let transports = doors.iter().map(|door| door.transport);
        Self {
            doors: transports.zip(sockets).collect(),
            visitors: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn awaited(
        &self,
        channel: &Channel,
        takes_more: bool,
    ) -> Vec<(Awaited, BorrowedFd<'_>, PollFlags)> {
        let mut awaited = Vec::new();
        if takes_more {
            for (index, (transport, socket)) in self.doors.iter().enumerate() {
                if *transport == Transport::Udp || self.visitors.len() < MOST {
                    awaited.push((Awaited::Door(index), socket.as_fd(), PollFlags::IN));
                }
            }
        }
        for (number, visitor) in &self.visitors {
            let mut flags = PollFlags::empty();
            if visitor.inside && takes_more && channel.room(*number) > 0 {
                flags |= PollFlags::IN;
            }
            if !visitor.pending.is_empty() {
                flags |= PollFlags::OUT;
            }
            if !flags.is_empty() {
                awaited.push((Awaited::Visitor(*number), visitor.socket.as_fd(), flags));
            }
        }
        awaited
    }

    pub fn ready(&mut self, awaited: Awaited, channel: &mut Channel) {
        match awaited {
            Awaited::Door(index) => self.visit(index, channel),
            Awaited::Visitor(number) => {
                if let Some(visitor) = self.visitors.get_mut(&number) {
                    visitor.read(number, channel);
                    visitor.write(number, channel);
                }
                self.see_off(number);
            }
        }
    }

    /// Somebody is at the door.
    fn visit(&mut self, index: usize, channel: &mut Channel) {
        let Some((transport, socket)) = self.doors.get(index) else {
            return;
        };
        let door = index as u32;
        if *transport == Transport::Udp {
            let mut bytes = [0; MAX_DATAGRAM];
            let received = rustix::net::recvfrom(socket, &mut bytes[..], RecvFlags::DONTWAIT);
            if let Ok((_, length, Some(from))) = received
                && let Some(from) = address(from.try_into().ok())
            {
                let bytes = bytes[..length.min(MAX_DATAGRAM)].to_vec();
                channel.send(&FromGuest::Datagram { door, from, bytes });
            }
            return;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(visitor) = rustix::net::accept_with(socket, flags) else {
            return;
        };
        let dialled = rustix::net::getsockname(&visitor).ok();
        let Some(address) = address(dialled.and_then(|dialled| dialled.try_into().ok())) else {
            return;
        };
        let _ = rustix::net::sockopt::set_tcp_nodelay(&visitor, true);
        let number = self.number();
        channel.send(&FromGuest::Dialled {
            door,
            address,
            channel: number,
        });
        self.visitors.insert(
            number,
            Visitor {
                socket: visitor,
                pending: VecDeque::new(),
                inside: true,
                outside: true,
            },
        );
    }

    fn number(&mut self) -> u32 {
        loop {
            let number = GUEST_CHANNEL | self.next;
            self.next = (self.next + 1) % (GUEST_CHANNEL - 1);
            if !self.visitors.contains_key(&number) {
                return number;
            }
        }
    }

    /// Bytes for a visitor; `false` if there is none of this number.
    pub fn data(&mut self, number: u32, bytes: &[u8], channel: &mut Channel) -> bool {
        let Some(visitor) = self.visitors.get_mut(&number) else {
            return false;
        };
        visitor.pending.extend(bytes);
        visitor.write(number, channel);
        self.see_off(number);
        true
    }

    /// Nothing more will come for a visitor.
    pub fn end(&mut self, number: u32, channel: &mut Channel) {
        if let Some(visitor) = self.visitors.get_mut(&number) {
            visitor.outside = false;
            visitor.write(number, channel);
        }
        self.see_off(number);
    }

    /// The outside wants nothing more to do with a visitor.
    pub fn drop_visitor(&mut self, number: u32, channel: &mut Channel) {
        if self.visitors.remove(&number).is_some() {
            channel.forget(number);
        }
    }

    pub fn answer(&self, door: u32, to: ([u8; 4], u16), bytes: &[u8]) {
        if let Some((Transport::Udp, socket)) = self.doors.get(door as usize) {
            let to = SocketAddrV4::new(to.0.into(), to.1);
            let _ = rustix::net::sendto(socket, bytes, SendFlags::DONTWAIT, &to);
        }
    }

    fn see_off(&mut self, number: u32) {
        let over =
            |visitor: &Visitor| !visitor.inside && !visitor.outside && visitor.pending.is_empty();
        if self.visitors.get(&number).is_some_and(over) {
            self.visitors.remove(&number);
        }
    }
}

impl Visitor {
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
                    channel.grant(number, count as u32);
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

    /// The program is gone, or does not want any more.
    fn lost(&mut self, number: u32, channel: &mut Channel) {
        if std::mem::take(&mut self.inside) {
            channel.send_end(number);
        }
        channel.grant(number, self.pending.len() as u32);
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
