//! Routes that send every packet for another host back into this namespace, where raw sockets receive it.
//! Without a route, the kernel would refuse such packets, and they could not be recorded.
//!
//! By hand: three netlink messages don't justify an async netlink crate in the guest.

use std::io;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE`.
const FLAGS: u16 = 0x001 | 0x004 | 0x200 | 0x400;
/// The index of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;
/// IPv4's default table, which is searched last. With a route in another table, the kernel would treat such
/// addresses as local, and a program could listen on them.
const LAST: u8 = 253;
const MAIN: u8 = 254;

const TO_SELF: u8 = 2;
const THROW: u8 = 9;

const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const SOURCE: u16 = 7;

const IPV4: u8 = 2;
const IPV6: u8 = 10;

pub(super) fn add() -> io::Result<()> {
    let own = attribute(SOURCE, &[127, 0, 0, 1]);
    let back = attribute(INTERFACE, &LOOPBACK.to_ne_bytes());
    let multicast = attribute(DESTINATION, &[224, 0, 0, 0]);
    let routes = [
        route(IPV4, 0, LAST, TO_SELF, &[&back[..], &own].concat()),
        // Multicast packets would not reach the raw sockets. Without a route, they are refused.
        route(IPV4, 4, LAST, THROW, &multicast),
        route(IPV6, 0, MAIN, TO_SELF, &back),
    ];
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::send(&socket, &routes.concat(), SendFlags::empty())?;
    for family in [IPV4, IPV4, IPV6] {
        let mut answer = [0; 512];
        // The kernel has processed the messages when `send` returns.
        let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        match acknowledged(&answer[..length]) {
            // Fails if IPv6 is missing or switched off. Then there are no packets to send back.
            Ok(()) | Err(_) if family == IPV6 => {}
            other => other?,
        }
    }
    Ok(())
}

fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let malformed = || io::Error::from(Errno::PROTO);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let errno = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
    match (
        kind.map(u16::from_ne_bytes).ok_or_else(malformed)?,
        errno.map(i32::from_ne_bytes).ok_or_else(malformed)?,
    ) {
        (ERROR, 0) => Ok(()),
        (ERROR, errno) => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        _ => Err(malformed()),
    }
}

fn route(family: u8, bits: u8, table: u8, kind: u8, attributes: &[u8]) -> Vec<u8> {
    const BY_BOOT: u8 = 3;
    const HOST: u8 = 254;
    const UNIVERSE: u8 = 0;
    let scope = if kind == TO_SELF { HOST } else { UNIVERSE };
    let body = [
        &[family, bits, 0, 0, table, BY_BOOT, scope, kind],
        &[0; 4][..],
        attributes,
    ]
    .concat();
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    [
        &length.to_ne_bytes()[..],
        &NEW_ROUTE.to_ne_bytes(),
        &FLAGS.to_ne_bytes(),
        &1u32.to_ne_bytes(),
        &0u32.to_ne_bytes(),
        &body,
    ]
    .concat()
}

/// All attributes here have four bytes, and so need no padding.
fn attribute(kind: u16, value: &[u8; 4]) -> Vec<u8> {
    [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
}
