//! What a program wants to reach.

use std::fmt;
use std::net::IpAddr;

use crate::address::{any_form, canonical, ends_in_number};
use crate::error::HostError;
use crate::name::{Name, ascii};

/// A name or an address, in canonical form. The same bytes are judged, looked up and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name, for DNS to look up.
    Name(Name),
    /// An address. An IPv4 address inside an IPv6 address is held as IPv4.
    Address(IpAddr),
}

impl Host {
    /// Reads a host without a port. IPv6 addresses may be in brackets.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(rest) = text.strip_prefix('[') {
            return (rest.strip_suffix(']'))
                .filter(|inner| inner.contains(':'))
                .and_then(any_form)
                .map(Self::from)
                .ok_or_else(|| {
                    HostError::new(text, "only an IPv6 address is written in brackets")
                });
        }
        if text.contains(':') {
            return (any_form(text))
                .map(Self::from)
                .ok_or_else(|| HostError::new(text, "it is not an IPv6 address"));
        }
        let plain = match text.is_ascii() {
            true => text.to_ascii_lowercase(),
            false => ascii(text, text)?,
        };
        let plain = plain.strip_suffix('.').unwrap_or(&plain);
        if ends_in_number(plain) {
            return (any_form(plain))
                .map(Self::from)
                .ok_or_else(|| HostError::new(text, "it is neither a name nor an address"));
        }
        Name::parse(text, text).map(Self::Name)
    }

    /// Reads `host:port`; the port is the given one if none is there.
    pub fn parse_with_port(text: &str, default: Option<u16>) -> Result<(Self, u16), HostError> {
        let end = text.rfind(']').map_or(0, |at| at + 1);
        let after = text.get(end..).unwrap_or_default();
        let (host, port) = match after.rfind(':') {
            // More than one colon: an IPv6 address without brackets, and so without a port.
            Some(at) if end > 0 || after.find(':') == Some(at) => text.split_at(end + at),
            _ => (text, ""),
        };
        let port = match (port.strip_prefix(':'), default) {
            (Some(port), _) => (port.bytes().all(|b| b.is_ascii_digit()))
                .then(|| port.parse().ok())
                .flatten()
                .filter(|port| *port > 0),
            (None, default) => default,
        };
        let port = port.ok_or_else(|| {
            HostError::new(text, "it has no port").fix("a port is 1 to 65535, after `:`")
        })?;
        Ok((Self::parse(host)?, port))
    }

    /// With a port, as URLs and rules write it.
    pub fn with_port(&self, port: u16) -> String {
        match self {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            host => format!("{host}:{port}"),
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(canonical(address))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => write!(f, "{name}"),
            Host::Address(address) => write!(f, "{address}"),
        }
    }
}
