//! The address behind an address, and what kind it is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rule::Pattern;

/// What kind of address it is. Everything but `Public` needs a rule that names the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// In no other class: an address on the Internet.
    Public,
    /// This machine: 127.0.0.0/8 and `::1`.
    Loopback,
    /// RFC 1918, and unique local IPv6.
    Private,
    /// 169.254.0.0/16, and fe80::/9 for IPv6.
    LinkLocal,
    /// 100.64.0.0/10, shared by the customers of a provider.
    CarrierGrade,
    /// 224.0.0.0/4, and ff00::/8 for IPv6.
    Multicast,
    /// Where clouds hand out credentials.
    Metadata,
    /// No address in particular: `0.0.0.0` and `::`.
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

/// What is not public, by network. Where two overlap, the first one counts; the kinds that matter most
/// come first, because a rule is described by the worst that it opens.
#[rustfmt::skip]
pub(crate) const RANGES: &[(IpAddr, u8, Class)] = &[
    (v4(169, 254, 169, 254), 32, Class::Metadata),
    (v4(169, 254, 170, 2), 32, Class::Metadata),
    (v4(169, 254, 170, 23), 32, Class::Metadata),
    (v4(100, 100, 100, 200), 32, Class::Metadata),
    (v4(168, 63, 129, 16), 32, Class::Metadata),
    (v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254]), 128, Class::Metadata),
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]), 128, Class::Metadata),
    (v4(127, 0, 0, 0), 8, Class::Loopback),
    (v6([0, 0, 0, 0, 0, 0, 0, 1]), 128, Class::Loopback),
    (v4(0, 0, 0, 0), 32, Class::Unspecified),
    (v6([0; 8]), 128, Class::Unspecified),
    (v4(169, 254, 0, 0), 16, Class::LinkLocal),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 9, Class::LinkLocal),
    (v4(10, 0, 0, 0), 8, Class::Private),
    (v4(172, 16, 0, 0), 12, Class::Private),
    (v4(192, 168, 0, 0), 16, Class::Private),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, Class::Private),
    (v4(100, 64, 0, 0), 10, Class::CarrierGrade),
    (v4(224, 0, 0, 0), 4, Class::Multicast),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, Class::Multicast),
    (v4(0, 0, 0, 0), 8, Class::Reserved),
    (v4(192, 0, 0, 0), 24, Class::Reserved),
    (v4(192, 0, 2, 0), 24, Class::Reserved),
    (v4(192, 88, 99, 0), 24, Class::Reserved),
    (v4(198, 18, 0, 0), 15, Class::Reserved),
    (v4(198, 51, 100, 0), 24, Class::Reserved),
    (v4(203, 0, 113, 0), 24, Class::Reserved),
    (v4(240, 0, 0, 0), 4, Class::Reserved),
    // Teredo, benchmarks, ORCHID, documentation, 6to4: an address in another address, or none at all.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23, Class::Reserved),
    (v6([0x2001, 0x0db8, 0, 0, 0, 0, 0, 0]), 32, Class::Reserved),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, Class::Reserved),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, Class::Reserved),
    // All but 2000::/3.
    (v6([0; 8]), 3, Class::Reserved),
    (v6([0x4000, 0, 0, 0, 0, 0, 0, 0]), 2, Class::Reserved),
    (v6([0x8000, 0, 0, 0, 0, 0, 0, 0]), 1, Class::Reserved),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(groups: [u16; 8]) -> IpAddr {
    let [a, b, c, d, e, f, g, h] = groups;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

impl Class {
    /// The class of the address behind this one.
    pub fn of(address: IpAddr) -> Self {
        let address = canonical(address);
        let found = RANGES.iter().find(|(first, bits, _)| {
            first.is_ipv4() == address.is_ipv4() && Pattern::first_of(address, *bits) == *first
        });
        found.map_or(Class::Public, |(_, _, class)| *class)
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
    let room = 8 * (4 - u32::try_from(front.len()).ok()?);
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
