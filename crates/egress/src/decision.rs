//! The decision on a connection, and its text. The same for every protocol.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use brig_hosts::{Class, Host, Rule};
use brig_reason::ReasonCode;

use crate::rules::LayerKind;

/// How the sandbox made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A request to the HTTP proxy.
    Http,
    /// A tunnel through the HTTP proxy.
    Connect,
    /// A SOCKS5 `CONNECT`, to a name or an address.
    Socks5,
    /// The lookup of a name, over UDP or TCP.
    Dns,
    /// A connection to an address, which DNS may have handed out.
    Tcp,
    /// A packet to an address. Never forwarded.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Http => "http",
            Protocol::Connect => "connect",
            Protocol::Socks5 => "socks5",
            Protocol::Dns => "dns",
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// Why it was allowed or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A rule allows it.
    Rule,
    /// No rule is needed: the policy allows every public host.
    Default,
    /// No rule allows it.
    NoRule,
    /// A rule allows the host, but not this port.
    Port,
    /// A rule blocks it.
    Blocked,
    /// The address is not public, and no rule names it.
    Closed(Class),
    /// The name led only to addresses like this one.
    LedTo(IpAddr, Class),
    /// The protocol names another host than the one that was requested.
    Mismatch(String),
    /// The requested host is invalid, or the request can't be read.
    Malformed(String),
    /// The protocol is neither TLS nor HTTP, and no rule says `/tcp`.
    Raw(&'static str),
    /// Allowed, but an encrypted part of the ClientHello may contain another name.
    Hidden,
    /// A protocol or command that is not supported.
    Protocol(String),
    /// The decision could not be recorded.
    Unrecorded,
    /// The rules changed while it was open.
    Revoked,
    /// Allowed, but the name can't be looked up.
    Unresolved(String),
    /// Allowed, but the host can't be reached.
    Unreachable(String),
    /// Too many connections, or too slow.
    Limit(&'static str),
}

impl Reason {
    /// Stable.
    pub fn code(&self) -> &'static str {
        let code = match self {
            Reason::Rule => ReasonCode::NetworkRule,
            Reason::Default => ReasonCode::NetworkDefault,
            Reason::NoRule => ReasonCode::NetworkNoRule,
            Reason::Port => ReasonCode::NetworkPort,
            Reason::Blocked => ReasonCode::NetworkBlocked,
            Reason::Closed(_) | Reason::LedTo(..) => ReasonCode::NetworkAddress,
            Reason::Mismatch(_) => ReasonCode::NetworkMismatch,
            Reason::Malformed(_) => ReasonCode::NetworkMalformed,
            Reason::Raw(_) => ReasonCode::NetworkRaw,
            Reason::Hidden => ReasonCode::NetworkHiddenName,
            Reason::Protocol(_) => ReasonCode::NetworkProtocol,
            Reason::Unrecorded => ReasonCode::NetworkUnrecorded,
            Reason::Revoked => ReasonCode::NetworkRevoked,
            Reason::Unresolved(_) => ReasonCode::NetworkUnresolved,
            Reason::Unreachable(_) => ReasonCode::NetworkUnreachable,
            Reason::Limit(_) => ReasonCode::NetworkLimit,
        };
        code.code()
    }
}

/// Whether a connection is allowed, and by which rule. `Display` is the text that clients get, as far as their
/// protocol can express it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may pass. Also `false` if it was allowed, but has failed or was ended by the gateway.
    pub allowed: bool,
    /// The requested host in canonical form, or as it was written if it has none.
    pub host: Result<Host, String>,
    /// `None` for DNS, and for a request that can't be read.
    pub port: Option<u16>,
    /// How the request reached the gateway.
    pub protocol: Protocol,
    /// Why it is allowed or denied. Its code is in records and in the responses to clients.
    pub reason: Reason,
    /// The rule that decided, or for a denial the closest one.
    pub rule: Option<Arc<Rule>>,
    /// The source of `rule`. `None` if there is no rule.
    pub layer: Option<LayerKind>,
    /// Any protocol is allowed, and nothing is inspected.
    pub raw: bool,
    /// The generation of the rules.
    pub generation: u64,
}

impl Decision {
    /// The same request, denied for this reason.
    pub(crate) fn but(&self, reason: Reason) -> Self {
        Self {
            allowed: false,
            reason,
            ..self.clone()
        }
    }

    /// The same, ended for this reason.
    pub fn ended(&self, reason: &Reason) -> Self {
        self.but(reason.clone())
    }

    /// The same decision for any protocol.
    pub(crate) fn as_raw(&self) -> Self {
        Self {
            raw: true,
            ..self.clone()
        }
    }

    /// The requested host with its port.
    pub fn target(&self) -> String {
        match (&self.host, self.port) {
            (Ok(host), Some(port)) => host.with_port(port),
            (Ok(host), None) => host.to_string(),
            (Err(text), _) => text.chars().take(100).collect(),
        }
    }

    /// Details that host, port and code don't contain.
    pub fn detail(&self) -> Option<String> {
        Some(match &self.reason {
            Reason::Closed(class) => format!("a {class} address"),
            Reason::LedTo(_, class) => format!("the name resolves to a {class} address"),
            Reason::Mismatch(what)
            | Reason::Malformed(what)
            | Reason::Protocol(what)
            | Reason::Unresolved(what)
            | Reason::Unreachable(what) => what.clone(),
            Reason::Raw(what) | Reason::Limit(what) => (*what).to_owned(),
            Reason::Hidden => "its TLS ClientHello may contain another name (ECH)".to_owned(),
            Reason::Rule
            | Reason::Default
            | Reason::NoRule
            | Reason::Port
            | Reason::Blocked
            | Reason::Unrecorded
            | Reason::Revoked => return None,
        })
    }

    /// The address that was refused, if that was the reason.
    pub fn refused_address(&self) -> Option<IpAddr> {
        match (&self.reason, &self.host) {
            (Reason::LedTo(address, _), _) => Some(*address),
            _ => None,
        }
    }

    /// The exact command that would allow it, if there is one.
    pub fn hint(&self) -> Option<String> {
        match &self.reason {
            Reason::NoRule | Reason::Port | Reason::Closed(_) => {
                let rule = Rule::exactly(self.host.as_ref().ok()?, self.port.unwrap_or(443));
                Some(format!("brig sandbox allow {rule}"))
            }
            Reason::Raw(_) => {
                let rule = Rule::exactly_raw(self.host.as_ref().ok()?, self.port?);
                Some(format!("brig sandbox allow {rule}"))
            }
            Reason::LedTo(address, _) => {
                let rule = Rule::exactly(&Host::from(*address), self.port?);
                Some(format!("brig sandbox allow {rule}"))
            }
            Reason::Blocked => {
                let rule = self.rule.as_ref()?;
                match self.layer? {
                    LayerKind::User => Some(format!("brig sandbox unblock '{rule}'")),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn why(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |f: &mut fmt::Formatter<'_>| match (&self.rule, self.layer) {
            (Some(rule), Some(layer)) => write!(f, "`{rule}` ({layer})"),
            _ => f.write_str("a rule"),
        };
        match &self.reason {
            Reason::Rule => {
                f.write_str("allowed by ")?;
                by(f)
            }
            Reason::Default => f.write_str("the policy allows every public host"),
            Reason::NoRule => f.write_str("no rule allows it"),
            Reason::Port => {
                by(f)?;
                f.write_str(" is for other ports")
            }
            Reason::Blocked => {
                f.write_str("blocked by ")?;
                by(f)
            }
            Reason::Closed(class) => write!(f, "it is a {class} address, and no rule names it"),
            Reason::LedTo(address, class) => match class {
                Class::Public => write!(f, "it resolves to {address}, which is blocked"),
                class => write!(
                    f,
                    "it resolves to {address}, a {class} address that no rule names"
                ),
            },
            Reason::Mismatch(what) | Reason::Malformed(what) | Reason::Protocol(what) => {
                f.write_str(what)
            }
            Reason::Raw(what) => f.write_str(what),
            Reason::Hidden => f.write_str("its TLS ClientHello may contain another name (ECH)"),
            Reason::Unrecorded => f.write_str("the decision could not be recorded"),
            Reason::Revoked => f.write_str("the rules have changed"),
            Reason::Unresolved(why) => write!(f, "the name cannot be resolved: {why}"),
            Reason::Unreachable(why) => write!(f, "the connection failed: {why}"),
            Reason::Limit(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.reason {
            Reason::Unresolved(_) | Reason::Unreachable(_) => "cannot be reached",
            _ if self.allowed => "is allowed",
            _ => "is denied",
        };
        write!(f, "`{}` {verb}: ", self.target())?;
        self.why(f)?;
        match self.hint() {
            Some(hint) => write!(f, "; `{hint}` would allow it"),
            None => Ok(()),
        }
    }
}
