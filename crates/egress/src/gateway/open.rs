//! Decide, resolve, check, record, dial. In this order, and nowhere else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use brig_hosts::{Host, Name, canonical};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::meter::{Meter, Ticket};
use super::{Gateway, lock};
use crate::decision::{Decision, Protocol, Reason};
use crate::record::Decided;
use crate::rules::RuleSet;

/// How long one of several addresses may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A connection that was allowed and made.
pub(super) struct Opened {
    pub stream: TcpStream,
    pub ticket: Ticket,
}

impl Gateway {
    /// A connection to the host, or the decision that says why not.
    pub(super) async fn open(
        &self,
        host: &Host,
        port: u16,
        protocol: Protocol,
    ) -> Result<Opened, Decision> {
        let rules = self.shared.rules.current();
        let decision = rules.decide(host, port, protocol);
        if !decision.allowed {
            return Err(self.denied(decision));
        }
        let found = match host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) => self.addresses(&rules, name, port).await,
        };
        let addresses = match found {
            Ok(addresses) => addresses,
            Err(reason @ Reason::Unresolved(_)) => {
                let ticket = self.allowed(decision, None, Meter::new())?;
                ticket.ends(reason.clone());
                return Err(ticket.decision.but(reason));
            }
            Err(reason) => return Err(self.denied(decision.but(reason))),
        };
        let ticket = self.allowed(decision, addresses.first().copied(), Meter::new())?;
        match self.dial(&addresses, port).await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                self.bound(&stream);
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
            Err(_) => return Err(Reason::Unresolved("no answer in time".to_owned())),
        };
        let mut sound: Vec<IpAddr> = Vec::new();
        let mut refused = Reason::Unresolved("it has no address".to_owned());
        for address in all {
            // An address is what it says or what it maps; tunnels are dialled as they are.
            let address = match canonical(address) {
                mapped if address.to_canonical() == mapped => mapped,
                _ => address,
            };
            match rules.check_address(address, port) {
                Ok(()) if sound.contains(&address) => {}
                Ok(()) => sound.push(address),
                Err(reason) => refused = reason,
            }
        }
        match sound.is_empty() {
            true => Err(refused),
            false => Ok(sound),
        }
    }

    async fn dial(&self, addresses: &[IpAddr], port: u16) -> io::Result<(TcpStream, IpAddr)> {
        let end = Instant::now() + self.shared.limits.dial;
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for (tried, address) in addresses.iter().enumerate() {
            let until = match tried + 1 == addresses.len() {
                true => end,
                false => end.min(Instant::now() + PATIENCE),
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

    /// Records what is allowed, before it happens. Its end is told when the ticket is dropped.
    pub(super) fn allowed(
        &self,
        decision: Decision,
        address: Option<IpAddr>,
        meter: Arc<Meter>,
    ) -> Result<Ticket, Decision> {
        let event = self.noted(decision, address)?;
        Ok(Ticket::new(
            self,
            event.id,
            event.decision,
            address,
            event.execution,
            meter,
        ))
    }

    /// Records what is allowed and over at once.
    pub(super) fn noted(
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

    /// Records what is denied. It stays denied if that fails.
    pub(super) fn denied(&self, decision: Decision) -> Decision {
        let event = self.event(decision, None);
        let _ = self.shared.record.decided(&event);
        event.decision
    }

    /// Records that something was asked for that has no canonical form.
    pub(super) fn malformed(&self, text: &str, protocol: Protocol, reason: Reason) -> Decision {
        self.denied(Decision {
            allowed: false,
            host: Err(text.to_owned()),
            port: None,
            protocol,
            reason,
            rule: None,
            layer: None,
            generation: self.shared.rules.current().generation(),
        })
    }

    fn event(&self, decision: Decision, address: Option<IpAddr>) -> Decided {
        Decided {
            id: self.shared.next.fetch_add(1, Relaxed),
            decision,
            address,
            execution: lock(&self.shared.execution).clone(),
        }
    }
}
