//! A rule about hosts: an entry of an allowlist or a blocklist.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::address::{any_form, canonical};
use crate::error::{HostError, quoted};
use crate::host::Host;
use crate::name::Name;
use crate::published::{is_published, is_registry};

/// Which hosts, on which ports, and whether any protocol. Reads back as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    pattern: Pattern,
    ports: Ports,
    /// `/tcp`: any protocol, not only TLS and HTTP with the host's name in them.
    raw: bool,
}

/// After the port of a rule that allows any protocol.
const RAW: &str = "/tcp";

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// One name. Names below it are not included.
    Name(Name),
    /// Every name below the domain, not the domain itself.
    Below(Name),
    /// One address.
    Address(IpAddr),
    /// All addresses with the same first bits.
    Network {
        /// The lowest address of the network.
        first: IpAddr,
        /// The length of the prefix: up to 32 for IPv4, up to 128 for IPv6.
        bits: u8,
    },
}

/// The ports of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// No port was written: 80 and 443.
    Web,
    /// This port only.
    One(u16),
    /// `:*`
    Any,
}

/// A warning about a valid rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What to know before the rule is used, for people to read.
    pub message: String,
}

impl Rule {
    /// Reads an entry such as `example.com`, `*.example.com:8443` or `10.0.0.0/8:5432/tcp`. The
    /// error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        obvious_mistakes(text)?;
        let (rest, raw) = match text.strip_suffix(RAW) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (host, ports) = split_port(text, rest)?;
        let pattern = Pattern::parse(text, host)?;
        if raw && ports == Ports::Web {
            let example = Self {
                ports: Ports::One(5432),
                pattern,
                raw,
            };
            return Err(HostError::new(text, "`/tcp` needs a port before it")
                .fix(format!("write the port, as in `{example}`")));
        }
        Ok(Self {
            pattern,
            ports,
            raw,
        })
    }

    /// The narrowest rule for one host and port.
    pub fn exactly(host: &Host, port: u16) -> Self {
        let pattern = match host {
            Host::Name(name) => Pattern::Name(name.clone()),
            Host::Address(address) => Pattern::Address(*address),
        };
        let ports = match port {
            80 | 443 if matches!(host, Host::Name(_)) => Ports::Web,
            port => Ports::One(port),
        };
        Self {
            pattern,
            ports,
            raw: false,
        }
    }

    /// The narrowest rule for one host and port, with any protocol.
    pub fn exactly_raw(host: &Host, port: u16) -> Self {
        Self {
            ports: Ports::One(port),
            raw: true,
            ..Self::exactly(host, port)
        }
    }

    /// Which hosts the rule is about.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Which ports the rule is about.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Whether the rule, as an entry of an allowlist, allows any protocol. In a blocklist it makes
    /// no difference.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// Whether the rule, as an entry of an allowlist, lets this through.
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.ports.allow(port) && self.pattern.matches(host)
    }

    /// Whether the rule, as an entry of a blocklist, stops this. Without a port it stops all.
    pub fn blocks(&self, host: &Host, port: u16) -> bool {
        self.ports.block(port) && self.pattern.matches(host)
    }

    /// Whether everything that the other rule allows is allowed by this one.
    pub fn covers(&self, other: &Rule) -> bool {
        (self.raw || !other.raw)
            && self.ports.cover(other.ports)
            && self.pattern.covers(&other.pattern)
    }

    /// What a person should know before the rule is used.
    pub fn warning(&self) -> Option<Warning> {
        let opens = self.opens();
        if let Some(mut message) = opens.and_then(|class| crate::reach::warning(self, class)) {
            if matches!(self.pattern, Pattern::Network { bits: 0..8, .. }) {
                message.push_str("; it is a large part of the whole network");
            }
            return Some(Warning { message });
        }
        let (name, below) = match &self.pattern {
            Pattern::Name(name) => (name, false),
            Pattern::Below(name) => (name, true),
            Pattern::Network { bits: 0..8, .. } => {
                return Some(Warning {
                    message: format!("`{self}` allows a large part of the whole network"),
                });
            }
            _ => return self.unchecked(),
        };
        let published = is_published(name, below).then(|| Warning {
            message: format!(
                "anyone can publish at `{self}`: code in the sandbox can send data to anyone there"
            ),
        });
        published.or_else(|| self.unchecked())
    }

    /// On ports where TLS and HTTP are spoken, any protocol means that nobody checks names.
    fn unchecked(&self) -> Option<Warning> {
        let web = self.ports.allow(80) || self.ports.allow(443);
        (self.raw && web).then(|| Warning {
            message: format!(
                "names in TLS and HTTP are not checked for `{self}`: code can request any other name that the server also serves"
            ),
        })
    }
}

impl Ports {
    /// Whether an allowlist with these ports allows this one.
    pub fn allow(self, port: u16) -> bool {
        match self {
            Ports::Web => port == 80 || port == 443,
            Ports::One(own) => own == port,
            Ports::Any => true,
        }
    }

    /// Whether a blocklist with these ports blocks this one. Without a port, it blocks every port.
    pub fn block(self, port: u16) -> bool {
        self == Ports::Web || self.allow(port)
    }

    fn cover(self, other: Ports) -> bool {
        match (self, other) {
            (Ports::Any, _) => true,
            (Ports::Web, Ports::One(port)) => self.allow(port),
            _ => self == other,
        }
    }
}

impl Pattern {
    fn parse(text: &str, host: &str) -> Result<Self, HostError> {
        if let Some((address, bits)) = host.split_once('/') {
            return network(text, address, bits);
        }
        if let Some(domain) = host.strip_prefix("*.") {
            let domain = Name::parse(text, domain)?;
            if is_registry(&domain) {
                return Err(HostError::new(
                    text,
                    format!("anyone can register a name below `{domain}`"),
                )
                .fix("name the domains"));
            }
            return Ok(Pattern::Below(domain));
        }
        if host.contains('*') {
            return Err(
                HostError::new(text, "`*` is allowed only as the first label")
                    .fix("write `*.domain`"),
            );
        }
        match Host::parse(host) {
            Ok(Host::Name(_)) => Ok(Pattern::Name(Name::parse(text, host)?)),
            // Other forms of an address are understood, but not in a list that people read.
            Ok(Host::Address(address)) if host.parse::<IpAddr>().is_err() => {
                Err(HostError::new(text, "it is an address in an unusual form")
                    .fix(format!("write `{address}`")))
            }
            Ok(Host::Address(address)) => Ok(Pattern::Address(address)),
            Err(_) => Name::parse(text, host).map(Pattern::Name),
        }
    }

    /// Whether the host is one of these. A name never matches an address, nor the reverse.
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Pattern::Name(own), Host::Name(name)) => own == name,
            (Pattern::Below(domain), Host::Name(name)) => name.is_below(domain),
            (Pattern::Address(own), Host::Address(address)) => own == address,
            (Pattern::Network { first, bits }, Host::Address(address)) => {
                is_in(*address, *first, *bits)
            }
            _ => false,
        }
    }

    /// The lowest address with the same first bits.
    pub fn first_of(address: IpAddr, bits: u8) -> IpAddr {
        first_of(address, bits)
    }

    fn covers(&self, other: &Pattern) -> bool {
        use Pattern::{Address, Below, Name, Network};
        match (self, other) {
            (Below(domain), Name(name)) => name.is_below(domain),
            (Below(domain), Below(other)) => domain == other || other.is_below(domain),
            (Network { first, bits }, Address(address)) => is_in(*address, *first, *bits),
            (
                Network { first, bits },
                Network {
                    first: other,
                    bits: other_bits,
                },
            ) => bits <= other_bits && is_in(*other, *first, *bits),
            _ => self == other,
        }
    }
}

impl FromStr for Rule {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Rule {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        Self::parse(&text)
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.ports != Ports::Web;
        match &self.pattern {
            Pattern::Name(name) => write!(f, "{name}")?,
            Pattern::Below(domain) => write!(f, "*.{domain}")?,
            Pattern::Address(IpAddr::V6(address)) if brackets => write!(f, "[{address}]")?,
            Pattern::Address(address) => write!(f, "{address}")?,
            Pattern::Network { first, bits } if brackets && first.is_ipv6() => {
                write!(f, "[{first}/{bits}]")?;
            }
            Pattern::Network { first, bits } => write!(f, "{first}/{bits}")?,
        }
        match self.ports {
            Ports::Web => {}
            Ports::One(port) => write!(f, ":{port}")?,
            Ports::Any => f.write_str(":*")?,
        }
        f.write_str(if self.raw { RAW } else { "" })
    }
}

fn is_in(address: IpAddr, first: IpAddr, bits: u8) -> bool {
    address.is_ipv4() == first.is_ipv4() && first_of(address, bits) == first
}

/// The lowest address with the same first bits.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32u32.saturating_sub(bits.into()))
                .unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128u32.saturating_sub(bits.into()))
                .unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

fn obvious_mistakes(text: &str) -> Result<(), HostError> {
    let wrong = |problem: &str| HostError::new(text, problem);
    if text.is_empty() {
        return Err(wrong("it is empty").fix("remove the entry"));
    }
    if text.contains([',', '，', '、', ';']) {
        return Err(wrong("it contains more than one entry").fix("write one entry for each host"));
    }
    if text.contains(char::is_whitespace) {
        return Err(wrong("it contains a space").fix("write one entry for each host"));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let host = rest[..end].rsplit('@').next().unwrap_or_default();
        return Err(wrong("it is a URL").fix(format!("write only the host: {}", quoted(host))));
    }
    if matches!(text, "*" | "**") || text.starts_with("*:") {
        return Err(wrong("it would allow the whole network")
            .fix("name the hosts, or set `defaults.network_default: allow` in a policy"));
    }
    if text.contains('@') {
        return Err(wrong("it contains a user name").fix("write only the host"));
    }
    Ok(())
}

fn split_port<'a>(entry: &str, text: &'a str) -> Result<(&'a str, Ports), HostError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else {
            return Err(HostError::new(entry, "a `[` without its `]`"));
        };
        if !host.contains(':') {
            return Err(HostError::new(entry, "only IPv6 is written in brackets")
                .fix("remove the brackets"));
        }
        if after.is_empty() {
            return Ok((host, Ports::Web));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, port),
            None => {
                return Err(HostError::new(
                    entry,
                    "something other than a port after `]`",
                ));
            }
        }
    } else {
        match text.split_once(':') {
            // More than one colon: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => return Ok((text, Ports::Web)),
            Some((host, port)) => (host, port),
            None => return Ok((text, Ports::Web)),
        }
    };
    if port == "*" {
        return Ok((host, Ports::Any));
    }
    (port.bytes().all(|b| b.is_ascii_digit()))
        .then(|| port.parse().ok())
        .flatten()
        .filter(|port| *port > 0)
        .map(|port| (host, Ports::One(port)))
        .ok_or_else(|| {
            HostError::new(entry, format!("{} is not a valid port", quoted(port)))
                .fix("a port is 1 to 65535, or `*`; `/tcp` after it allows any protocol")
        })
}

fn network(text: &str, address: &str, bits: &str) -> Result<Pattern, HostError> {
    let Ok(address) = address.parse::<IpAddr>() else {
        let problem = match any_form(address) {
            Some(_) => "it is a network in an unusual form",
            None => "it contains a path",
        };
        return Err(HostError::new(text, problem).fix("write only the host"));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let valid = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
    let bits = match bits.parse::<u8>() {
        Ok(bits) if valid && bits <= most => bits,
        _ => {
            return Err(HostError::new(
                text,
                format!("a network of this kind has 1 to {most} bits"),
            ));
        }
    };
    if bits == 0 {
        return Err(HostError::new(text, "it would allow the whole network")
            .fix("name the networks, or set `defaults.network_default: allow` in a policy"));
    }
    if canonical(address) != address {
        return Err(
            HostError::new(text, "it is IPv4 written as IPv6").fix("write the IPv4 network")
        );
    }
    let first = first_of(address, bits);
    if first != address {
        return Err(
            HostError::new(text, "it is an address within a network").fix(format!(
                "write `{first}/{bits}` for the network, or `{address}` alone"
            )),
        );
    }
    Ok(Pattern::Network { first, bits })
}
