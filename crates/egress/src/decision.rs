//! The answer to "may this go out?", and how it reads. The same over every protocol.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use brig_hosts::{Class, Host, Rule};

use crate::rules::LayerKind;

/// How the sandbox asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A request to the HTTP proxy.
    Http,
    /// A tunnel through the HTTP proxy.
    Connect,
    Socks5,
    Dns,
    /// A connection to an address that DNS handed out.
    Tcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Http => "http",
            Protocol::Connect => "connect",
            Protocol::Socks5 => "socks5",
            Protocol::Dns => "dns",
            Protocol::Tcp => "tcp",
        })
    }
}

/// Why it was allowed or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A rule allows it.
    Rule,
    /// No rule is needed: the policy opens the network.
    Default,
    NoRule,
    /// A rule allows the host, but not this port.
    Port,
    /// A rule blocks it.
    Blocked,
    /// The address is not public, and no rule names it.
    Closed(Class),
    /// The name led only to addresses like this one.
    LedTo(IpAddr, Class),
    /// The client says it wants to reach something else than it asked for.
    Mismatch(String),
    /// What was asked for is no host, or the request can't be read.
    Malformed(String),
    /// A protocol or command that is not offered.
    Protocol(String),
    /// The record of it could not be written.
    Unrecorded,
    /// The rules changed while it was open.
    Revoked,
    /// Allowed, but the name can't be looked up.
    Unresolved(String),
    /// Allowed, but nobody answers.
    Unreachable(String),
    /// Too many connections, or too slow.
    Limit(&'static str),
}

impl Reason {
    /// Stable.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Rule => "network.rule",
            Reason::Default => "network.default",
            Reason::NoRule => "network.no-rule",
            Reason::Port => "network.port",
            Reason::Blocked => "network.blocked",
            Reason::Closed(_) | Reason::LedTo(..) => "network.address",
            Reason::Mismatch(_) => "network.mismatch",
            Reason::Malformed(_) => "network.malformed",
            Reason::Protocol(_) => "network.protocol",
            Reason::Unrecorded => "network.unrecorded",
            Reason::Revoked => "network.revoked",
            Reason::Unresolved(_) => "network.unresolved",
            Reason::Unreachable(_) => "network.unreachable",
            Reason::Limit(_) => "network.limit",
        }
    }
}

/// May this go out, and who says so. Shown, it is the text that every protocol carries as far as it
/// can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// What was asked for, in canonical form; as it was written, if it has none.
    pub host: Result<Host, String>,
    /// None for DNS, which asks for no port.
    pub port: Option<u16>,
    pub protocol: Protocol,
    pub reason: Reason,
    /// The rule that decided, or came near.
    pub rule: Option<Arc<Rule>>,
    pub layer: Option<LayerKind>,
    /// How often the rules had changed.
    pub generation: u64,
}

impl Decision {
    /// The same question with another answer.
    pub(crate) fn but(&self, reason: Reason) -> Self {
        Self {
            allowed: false,
            reason,
            ..self.clone()
        }
    }

    /// What was asked for, with its port.
    pub fn target(&self) -> String {
        match (&self.host, self.port) {
            (Ok(host), Some(port)) => host.with_port(port),
            (Ok(host), None) => host.to_string(),
            (Err(text), _) => text.escape_debug().take(100).collect(),
        }
    }

    /// The exact command that would allow it, if there is one.
    pub fn hint(&self) -> Option<String> {
        match &self.reason {
            Reason::NoRule | Reason::Port | Reason::Closed(_) => {
                let rule = Rule::exactly(self.host.as_ref().ok()?, self.port.unwrap_or(443));
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
            Reason::Default => f.write_str("the policy opens the network"),
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
                Class::Public => write!(f, "it leads to {address}, which is blocked"),
                class => write!(
                    f,
                    "it leads to {address}, a {class} address that no rule names"
                ),
            },
            Reason::Mismatch(what) | Reason::Malformed(what) | Reason::Protocol(what) => {
                f.write_str(what)
            }
            Reason::Unrecorded => f.write_str("the decision could not be recorded"),
            Reason::Revoked => f.write_str("the rules have changed"),
            Reason::Unresolved(why) => write!(f, "the name can't be looked up: {why}"),
            Reason::Unreachable(why) => write!(f, "nobody answers: {why}"),
            Reason::Limit(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.reason {
            Reason::Unresolved(_) | Reason::Unreachable(_) => "can't be reached",
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
