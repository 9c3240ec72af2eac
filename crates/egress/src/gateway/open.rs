//! Decide, resolve, check, record, dial: in this order, and nowhere else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use brig_hosts::{Host, Name, canonical};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::meter::{Meter, Ticket};
use super::{Gateway, lock, redact};
use crate::decision::{Decision, Protocol, Reason};
use crate::record::Decided;
use crate::rules::RuleSet;

/// How long to wait for one of several addresses.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that was allowed and made.
pub(super) struct Opened {
    pub stream: TcpStream,
    pub ticket: Ticket,
}

impl Gateway {
    /// A connection to the host, or the decision that denies it.
    pub(super) async fn open(
        &self,
        host: &Host,
        port: u16,
        protocol: Protocol,
    ) -> Result<Opened, Decision> {
        let rules = self.shared.rules.current();
        let decision = rules.decide(host, port, protocol);
        if !decision.allowed {
            return Err(self.record_denied(decision));
        }
        let found = match host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) => self.addresses(&rules, name, port).await,
        };
        let addresses = match found {
            Ok(addresses) => addresses,
            Err(reason @ Reason::Unresolved(_)) => {
                let ticket = self.record_opened(decision, None, Meter::new())?;
                ticket.ends(reason.clone());
                return Err(ticket.decision.but(reason));
            }
            Err(reason) => return Err(self.record_denied(decision.but(reason))),
        };
        let ticket = self.record_opened(decision, addresses.first().copied(), Meter::new())?;
        match self.dial(&addresses, port).await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                self.limit_socket(&stream);
                let mut ticket = ticket;
                ticket.address = Some(address);
                Ok(Opened { stream, ticket })
            }
            Err(error) => {
                let reason = Reason::Unreachable(error.to_string());
                ticket.ends(reason.clone());
                Err(ticket.decision.but(reason))
            }
        }
    }

    /// The addresses of a name that may be dialled, at least one.
    async fn addresses(
        &self,
        rules: &RuleSet,
        name: &Name,
        port: u16,
    ) -> Result<Vec<IpAddr>, Reason> {
        let lookup = self.shared.resolve.resolve(name);
        let all = match timeout(self.shared.limits.resolve, lookup).await {
            Ok(Ok(all)) => all,
            Ok(Err(error)) => return Err(Reason::Unresolved(error.to_string())),
            Err(_) => return Err(Reason::Unresolved("no response in time".to_owned())),
        };
        let mut allowed: Vec<IpAddr> = Vec::new();
        let mut refused = Reason::Unresolved("it has no address".to_owned());
        for address in all {
            // IPv4-mapped addresses are dialled as IPv4. Other embedded addresses are checked as what
            // they embed, but dialled as they are.
            let address = match canonical(address) {
                mapped if address.to_canonical() == mapped => mapped,
                _ => address,
            };
            match rules.check_address(address, port) {
                Ok(()) if allowed.contains(&address) => {}
                Ok(()) => allowed.push(address),
                Err(reason) => refused = reason,
            }
        }
        match allowed.is_empty() {
            true => Err(refused),
            false => Ok(allowed),
        }
    }

    async fn dial(&self, addresses: &[IpAddr], port: u16) -> io::Result<(TcpStream, IpAddr)> {
        let end = Instant::now() + self.shared.limits.dial;
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for (tried, address) in addresses.iter().enumerate() {
            let until = match tried + 1 == addresses.len() {
                true => end,
                false => end.min(Instant::now() + DIAL_TIMEOUT),
            };
            let dial = self.shared.dial.dial(SocketAddr::new(*address, port));
            match timeout_at(until, dial).await {
                Ok(Ok(stream)) => return Ok((stream, *address)),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }

    /// Records what is allowed, before it happens. Its end is recorded when the ticket is dropped.
    pub(super) fn record_opened(
        &self,
        decision: Decision,
        address: Option<IpAddr>,
        meter: Arc<Meter>,
    ) -> Result<Ticket, Decision> {
        let event = self.record_allowed(decision, address)?;
        Ok(Ticket::new(
            self,
            event.id,
            event.decision,
            address,
            event.execution,
            meter,
        ))
    }

    /// Records what is allowed and has no end of its own.
    pub(super) fn record_allowed(
        &self,
        decision: Decision,
        address: Option<IpAddr>,
    ) -> Result<Decided, Decision> {
        let event = self.event(decision, address);
        match self.shared.record.decided(&event) {
            Ok(()) => Ok(event),
            Err(_) => Err(event.decision.but(Reason::Unrecorded)),
        }
    }

    /// Records a denial. It stays denied if that fails.
    pub(super) fn record_denied(&self, decision: Decision) -> Decision {
        self.record_denied_at(decision, None)
    }

    /// The same for a connection that was open to this address.
    pub(super) fn record_denied_at(&self, decision: Decision, address: Option<IpAddr>) -> Decision {
        let event = self.event(decision, address);
        let _ = self.shared.record.decided(&event);
        event.decision
    }

    /// Records `count` equal denials.
    pub(super) fn record_denials(&self, decision: Decision, count: u64) {
        let event = Decided {
            count,
            ..self.event(decision, None)
        };
        let _ = self.shared.record.decided(&event);
    }

    /// Records a request whose target has no canonical form.
    pub(super) fn record_malformed(
        &self,
        text: &str,
        protocol: Protocol,
        reason: Reason,
    ) -> Decision {
        self.record_denied(Decision {
            allowed: false,
            host: Err(redact::host(text)),
            port: None,
            protocol,
            reason,
            rule: None,
            layer: None,
            raw: false,
            generation: self.shared.rules.current().generation(),
        })
    }

    fn event(&self, decision: Decision, address: Option<IpAddr>) -> Decided {
        Decided {
            id: self.shared.next.fetch_add(1, Relaxed),
            decision,
            address,
            execution: lock(&self.shared.execution).clone(),
            count: 1,
        }
    }
}
