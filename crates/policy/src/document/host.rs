//! What a host entry may be. Everything else is refused with what was probably meant.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::problem::{Fault, quoted};

/// Hosts that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostRule {
    pub host: HostPattern,
    /// None means 80 and 443.
    pub port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// One name, in lower case and without a final dot.
    Name(String),
    /// Every name below the domain, not the domain itself.
    Below(String),
    Address(IpAddr),
    /// All addresses with the same first bits.
    Network {
        first: IpAddr,
        bits: u8,
    },
}

impl HostRule {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        obvious_mistakes(text)?;
        let (host, port) = split_port(text)?;
        Ok(Self {
            host: pattern(text, host)?,
            port,
        })
    }

    /// Whether the rule lets a connection to this host and port through.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        self.allows_port(port) && self.host.matches(host)
    }

    fn allows_port(&self, port: u16) -> bool {
        match self.port {
            Some(own) => own == port,
            None => port == 80 || port == 443,
        }
    }

    /// Whether everything that the other rule allows is allowed by this one.
    pub fn covers(&self, other: &HostRule) -> bool {
        let ports = match (self.port, other.port) {
            (None, Some(port)) => port == 80 || port == 443,
            (own, other) => own == other,
        };
        ports && self.host.covers(&other.host)
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match self {
            HostPattern::Name(name) => *name == host,
            HostPattern::Below(domain) => is_below(&host, domain),
            HostPattern::Address(address) => host.parse() == Ok(*address),
            HostPattern::Network { first, bits } => host
                .parse()
                .is_ok_and(|address| is_in(address, *first, *bits)),
        }
    }

    fn covers(&self, other: &HostPattern) -> bool {
        use HostPattern::{Address, Below, Name, Network};
        match (self, other) {
            (Below(domain), Name(name)) => is_below(name, domain),
            (Below(domain), Below(other)) => domain == other || is_below(other, domain),
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

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (HostPattern::Name(name), _) => f.write_str(name)?,
            (HostPattern::Below(domain), _) => write!(f, "*.{domain}")?,
            (HostPattern::Address(IpAddr::V6(address)), Some(_)) => write!(f, "[{address}]")?,
            (HostPattern::Address(address), _) => write!(f, "{address}")?,
            (HostPattern::Network { first, bits }, Some(_)) if first.is_ipv6() => {
                write!(f, "[{first}/{bits}]")?;
            }
            (HostPattern::Network { first, bits }, _) => write!(f, "{first}/{bits}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .and_then(|rest| rest.strip_suffix('.'))
        .is_some_and(|rest| !rest.is_empty())
}

fn is_in(address: IpAddr, first: IpAddr, bits: u8) -> bool {
    address.is_ipv4() == first.is_ipv4() && first_of(address, bits) == first
}

/// The lowest address with the same first bits.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

fn fault(text: &str, problem: &str) -> Fault {
    Fault::new(
        "policy.host",
        format!("{} is no host: {problem}", quoted(text)),
    )
    .fix("write a host such as `example.org`, `*.example.org`, `192.0.2.1` or `10.0.0.0/8`, with a `:port` or without")
}

fn obvious_mistakes(text: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(fault(text, "it is empty").fix("remove the entry"));
    }
    if text.contains(',') {
        return Err(fault(text, "it is several in one").fix("write one entry for each host"));
    }
    if text.contains(char::is_whitespace) {
        return Err(fault(text, "it holds a space").fix("write one entry for each host"));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let host = rest[..end].rsplit('@').next().unwrap_or_default();
        return Err(fault(text, "it is a URL").fix(format!("write only the host: `{host}`")));
    }
    if text == "*" {
        return Err(fault(text, "it would open the whole network")
            .fix("name the hosts, or set `defaults.network_default: allow`"));
    }
    if text.contains('@') {
        return Err(fault(text, "it holds a user name").fix("write only the host"));
    }
    if !text.is_ascii() {
        return Err(fault(text, "it is not ASCII").fix("write it in its `xn--` form"));
    }
    Ok(())
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), Fault> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else {
            return Err(fault(text, "a `[` without its `]`"));
        };
        if after.is_empty() {
            return Ok((host, None));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, port),
            None => return Err(fault(text, "something other than a port after `]`")),
        }
    } else {
        match text.split_once(':') {
            // More than one colon: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => return Ok((text, None)),
            Some((host, port)) => (host, port),
            None => return Ok((text, None)),
        }
    };
    let number = (port.bytes().all(|b| b.is_ascii_digit()))
        .then(|| port.parse::<u16>().ok())
        .flatten()
        .filter(|port| *port > 0);
    match number {
        Some(port) => Ok((host, Some(port))),
        None => {
            Err(fault(text, &format!("{} is no port", quoted(port))).fix("a port is 1 to 65535"))
        }
    }
}

fn pattern(text: &str, host: &str) -> Result<HostPattern, Fault> {
    if let Some((address, bits)) = host.split_once('/') {
        return network(text, address, bits);
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(HostPattern::Address(address));
    }
    if let Some(domain) = host.strip_prefix("*.") {
        return Ok(HostPattern::Below(name(text, domain)?));
    }
    if host.contains('*') {
        return Err(fault(
            text,
            "`*` stands only for whole names in front: `*.domain`",
        ));
    }
    Ok(HostPattern::Name(name(text, host)?))
}

fn network(text: &str, address: &str, bits: &str) -> Result<HostPattern, Fault> {
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(fault(text, "it holds a path").fix("write only the host"));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let Some(bits) = bits.parse::<u8>().ok().filter(|bits| *bits <= most) else {
        return Err(fault(
            text,
            &format!("a network of this kind has 0 to {most} bits"),
        ));
    };
    let first = first_of(address, bits);
    if first != address {
        return Err(
            fault(text, "it is an address within a network").fix(format!(
                "write `{first}/{bits}` for the network, or `{address}` alone"
            )),
        );
    }
    Ok(HostPattern::Network { first, bits })
}

fn name(text: &str, host: &str) -> Result<String, Fault> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.is_empty() || host.len() > 253 {
        return Err(fault(text, "a name has 1 to 253 characters"));
    }
    for label in host.split('.') {
        let sound = (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-');
        if !sound {
            return Err(fault(
                text,
                &format!("{} is no part of a name", quoted(label)),
            ));
        }
    }
    // What ends in a number is read as an address by some, and as a name by others.
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err(fault(text, "it is neither a name nor an address"));
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> HostRule {
        HostRule::parse(text).unwrap_or_else(|fault| panic!("{text}: {}", fault.message))
    }

    #[test]
    fn sound_entries_read_back_the_same() {
        for text in [
            "pypi.org",
            "*.github.com",
            "localhost:8080",
            "10.0.0.1",
            "10.0.0.0/8",
            "10.0.0.0/8:5432",
            "::1",
            "[::1]:443",
            "fd00::/8",
            "[fd00::/8]:443",
            "xn--bcher-kva.example",
            "_dns.example.com",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("PyPI.org.").to_string(), "pypi.org");
        assert_eq!(rule("[::1]").to_string(), "::1");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "a, b",
            "a b",
            "*",
            "https://pypi.org/simple",
            "pypi.org/simple",
            "*.",
            "*.*.com",
            "a*.com",
            "*com",
            "pypi.org:0",
            "pypi.org:http",
            "pypi.org:99999",
            "pypi.org:",
            "-a.com",
            "a..b",
            "1.2.3",
            "256.1.1.1",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "user@host",
            "bücher.example",
            "[::1",
            "[::1]x",
            "0x7f.1",
            ".",
            "a:+80",
        ] {
            assert!(HostRule::parse(text).is_err(), "{text}");
        }
        let fault = HostRule::parse("https://u:p@pypi.org:443/simple").expect_err("a URL");
        assert_eq!(
            fault.fix.as_deref(),
            Some("write only the host: `pypi.org:443`")
        );
    }

    #[test]
    fn a_rule_allows_what_it_says_and_no_more() {
        assert!(rule("*.github.com").allows("api.GitHub.com.", 443));
        assert!(!rule("*.github.com").allows("github.com", 443));
        assert!(!rule("*.github.com").allows("evilgithub.com", 443));
        assert!(rule("pypi.org").allows("pypi.org", 80));
        assert!(!rule("pypi.org").allows("pypi.org", 22));
        assert!(rule("pypi.org:22").allows("pypi.org", 22));
        assert!(rule("10.0.0.0/8").allows("10.255.0.1", 443));
        assert!(!rule("10.0.0.0/8").allows("11.0.0.1", 443));
        assert!(rule("0.0.0.0/0").allows("1.2.3.4", 80));
        assert!(!rule("0.0.0.0/0").allows("::1", 80));
    }

    #[test]
    fn wider_rules_cover_narrower_ones() {
        assert!(rule("*.b.c").covers(&rule("a.b.c:443")));
        assert!(rule("*.c").covers(&rule("*.b.c")));
        assert!(!rule("*.b.c").covers(&rule("*.c")));
        assert!(!rule("a.b.c:443").covers(&rule("a.b.c")));
        assert!(rule("10.0.0.0/8").covers(&rule("10.1.0.0/16")));
        assert!(!rule("10.1.0.0/16").covers(&rule("10.0.0.0/8")));
    }
}
