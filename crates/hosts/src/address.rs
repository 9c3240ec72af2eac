//! The address behind an address, and what kind it is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of address it is. Everything but `Public` needs a rule that names the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    Public,
    Loopback,
    /// RFC 1918, and unique local IPv6.
    Private,
    LinkLocal,
    /// 100.64.0.0/10, shared by the customers of a provider.
    CarrierGrade,
    Multicast,
    /// Where clouds hand out credentials.
    Metadata,
    Unspecified,
    /// For documentation, for benchmarks, for nothing yet, or for tunnels.
    Reserved,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Public => "public",
            Class::Loopback => "loopback",
            Class::Private => "private",
            Class::LinkLocal => "link-local",
            Class::CarrierGrade => "carrier-grade NAT",
            Class::Multicast => "multicast",
            Class::Metadata => "cloud metadata",
            Class::Unspecified => "unspecified",
            Class::Reserved => "reserved",
        })
    }
}

const METADATA_V4: [[u8; 4]; 5] = [
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [169, 254, 170, 23],
    [100, 100, 100, 200],
    [168, 63, 129, 16],
];

impl Class {
    /// The class of the address behind this one.
    pub fn of(address: IpAddr) -> Self {
        match canonical(address) {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

fn of_v4(address: Ipv4Addr) -> Class {
    let octets = address.octets();
    if METADATA_V4.contains(&octets) {
        return Class::Metadata;
    }
    match octets {
        [0, 0, 0, 0] => Class::Unspecified,
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private,
        [169, 254, ..] => Class::LinkLocal,
        [100, 64..=127, ..] => Class::CarrierGrade,
        [224..=239, ..] => Class::Multicast,
        [0, ..]
        | [240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Class::Reserved,
        _ => Class::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> Class {
    match address.segments() {
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
            Class::Metadata
        }
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0xfc00..=0xfdff, ..] => Class::Private,
        [0xfe80..=0xfeff, ..] => Class::LinkLocal,
        [0xff00..=0xffff, ..] => Class::Multicast,
        // Teredo, benchmarks, ORCHID: an address in another address, or none at all.
        [0x2001, 0..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => {
            Class::Reserved
        }
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Reserved,
    }
}

/// The IPv4 address inside an IPv6 one (mapped, compatible, translated, NAT64, 6to4), or the
/// address itself.
pub fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let last = |high: u16, low: u16| -> IpAddr {
        Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
    };
    match v6.segments() {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => last(high, low),
        _ => address,
    }
}

/// Whether the last part looks like a number, as the URL standard has it.
pub(crate) fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
        || (!last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
}

/// An address in any form that some program understands: dotted, fewer parts, decimal, octal, hex,
/// with a zone.
pub(crate) fn any_form(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.into());
    }
    if text.contains(':') {
        let address = text.split_once('%').map_or(text, |(address, _)| address);
        return address.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    if front.len() > 3 || front.iter().any(|part| *part > 255) {
        return None;
    }
    let room = 8 * (4 - front.len() as u32);
    if room < 32 && *last >= 1 << room {
        return None;
    }
    let high = (front.iter().zip([24, 16, 8])).fold(0, |sum, (part, shift)| sum | part << shift);
    Some(Ipv4Addr::from(high | last).into())
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        // `0x` alone is zero to some.
        Some("") => return Some(0),
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    (digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u32::from_str_radix(digits, radix).ok())
        .flatten()
}
