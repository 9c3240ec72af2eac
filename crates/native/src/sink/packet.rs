//! Parses packets that were sent in the sandbox, and builds the answers. By hand: `etherparse` and `pnet` parse
//! whole stacks, here five fields of hostile packets are needed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use brig_egress::Protocol;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const TCP_CHECKSUM: usize = 16;
/// "Network administratively prohibited": to a program, `ENETUNREACH`.
const PROHIBITED: [u8; 2] = [3, 9];

/// The destination of a packet, and its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub to: SocketAddr,
    /// The payload of a datagram, as far as it was kept.
    pub payload: &'a [u8],
}

/// An IPv4 packet with its header.
pub(super) fn ipv4(bytes: &[u8], protocol: Protocol) -> Option<Packet<'_>> {
    let (_, to, transport) = split(bytes)?;
    read(IpAddr::from(to), transport, protocol)
}

/// An IPv6 packet without its header.
pub(super) fn ipv6(bytes: &[u8], to: Ipv6Addr, protocol: Protocol) -> Option<Packet<'_>> {
    read(IpAddr::from(to), bytes, protocol)
}

/// `None` for packets to loopback, and for all but the first packet of a connection.
fn read(to: IpAddr, transport: &[u8], protocol: Protocol) -> Option<Packet<'_>> {
    const SYN_AND_ACK: u8 = 0x12;
    const SYN: u8 = 0x02;
    if to.is_loopback() || protocol == Protocol::Tcp && transport.get(13)? & SYN_AND_ACK != SYN {
        return None;
    }
    let port = u16::from_be_bytes(transport.get(2..4)?.try_into().ok()?);
    let payload = match protocol {
        Protocol::Udp => transport.get(UDP_HEADER..)?,
        _ => &[],
    };
    let to = SocketAddr::new(to, port);
    Some(Packet { to, payload })
}

/// Source, destination, and the rest after the header.
fn split(bytes: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, &[u8])> {
    let header = usize::from(bytes.first()? & 0xf) * 4;
    let address = |at: usize| -> Option<Ipv4Addr> {
        let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(octets.into())
    };
    Some((address(12)?, address(16)?, bytes.get(header..)?))
}

/// The ICMP message for the sender of an IPv4 packet.
pub(super) fn unreachable(bytes: &[u8]) -> Option<(Ipv4Addr, Vec<u8>)> {
    let (from, to, transport) = split(bytes)?;
    let header = bytes.len() - transport.len();
    let quoted = bytes.get(..header + 8)?;
    let mut message = [&PROHIBITED[..], &[0; 6], quoted].concat();
    let checksum = checksum(&message);
    message[2..4].copy_from_slice(&checksum);
    Some((from, with_header(to, from, ICMP, &message)))
}

/// The first packet of a TCP connection, to be sent again. With a new checksum, because on loopback the kernel
/// leaves it out, and without IP options.
pub(super) fn retransmission(bytes: &[u8]) -> Option<(Ipv4Addr, Vec<u8>)> {
    let (from, to, transport) = split(bytes)?;
    // Without data, which may not have been kept.
    let length = usize::from(transport.get(12)? >> 4) * 4;
    let mut segment = transport.get(..length)?.to_vec();
    segment.get_mut(TCP_CHECKSUM..TCP_CHECKSUM + 2)?.fill(0);
    let size = u16::try_from(segment.len()).ok()?;
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &[0, TCP],
        &size.to_be_bytes(),
        &segment,
    ]
    .concat();
    segment[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&checksum(&pseudo));
    Some((to, with_header(from, to, TCP, &segment)))
}

/// The kernel adds length and checksum.
fn with_header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IPV4_HEADER];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet.extend_from_slice(body);
    packet
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    loop {
        match u16::try_from(sum) {
            Ok(sum) => return (!sum).to_be_bytes(),
            Err(_) => sum = (sum >> 16) + (sum & 0xffff),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_or_refused_and_never_trusted() {
        let mut packet = with_header([127, 0, 0, 1].into(), [192, 0, 2, 1].into(), 17, &[0; 8]);
        packet[22..24].copy_from_slice(&53u16.to_be_bytes());
        packet.extend_from_slice(b"hello");
        let read = ipv4(&packet, Protocol::Udp).expect("a packet");
        assert_eq!(read.to, "192.0.2.1:53".parse().expect("an address"));
        assert_eq!(read.payload, b"hello");
        for length in 0..packet.len() {
            let short = &packet[..length];
            let _ = (
                ipv4(short, Protocol::Udp),
                unreachable(short),
                retransmission(short),
            );
        }
        for first in 0..=255 {
            packet[0] = first;
            let _ = (
                ipv4(&packet, Protocol::Tcp),
                unreachable(&packet),
                retransmission(&packet),
            );
        }
    }

    #[test]
    fn checksums_add_up() {
        let (to, message) = unreachable(&with_header(
            [127, 0, 0, 1].into(),
            [192, 0, 2, 1].into(),
            TCP,
            &[7; 20],
        ))
        .expect("an answer");
        assert_eq!(to, Ipv4Addr::LOCALHOST);
        assert_eq!(checksum(&message[IPV4_HEADER..]), [0, 0]);
        assert_eq!(message[9], ICMP);
    }
}
