//! Packets and calls to addresses without a listener: they are decided and recorded too.

use std::net::SocketAddr;

use brig_hosts::Host;
use hickory_proto::op::{Message, MessageType};

use super::pool::InUse;
use super::{Gateway, lock};
use crate::decision::{Protocol, Reason};

/// Why something is not forwarded although rules allow it.
pub const NO_UDP: &str = "UDP packets are not forwarded";
/// The same for connections over IPv6 that do not use the proxy.
pub const NO_IPV6: &str = "IPv6 packets are not forwarded";

/// The reason in a record about dropped packets. Its host is their number.
pub const DROPPED: &str = "they arrived faster than they could be recorded";

impl Gateway {
    /// A packet was sent to `address`. If the rules allow it, `listen` opens a listener there, or returns
    /// why it can't. When this returns `false`, the denial is recorded.
    pub fn packet_sent(
        &self,
        address: SocketAddr,
        protocol: Protocol,
        listen: impl FnOnce() -> Result<(), Reason>,
    ) -> bool {
        let (host, _) = self.host_behind(address);
        let rules = self.shared.rules.current();
        let decision = rules.decide(&host, address.port(), protocol);
        let denied = match decision.allowed {
            true => match listen() {
                Ok(()) => return true,
                Err(reason) => decision.but(reason),
            },
            false => decision,
        };
        self.record_denied(denied);
        false
    }

    /// `count` calls named `address`, which can't be reached without the proxy. When this returns, they
    /// are recorded as denied. A loopback address without a name in the pool is the sandbox's own.
    pub fn calls_to(&self, address: SocketAddr, protocol: Protocol, count: u64) {
        let (host, _) = self.host_behind(address);
        if address.ip().is_loopback() && matches!(host, Host::Address(_)) {
            return;
        }
        let decision = self.shared.rules.current();
        let decision = decision.decide(&host, address.port(), protocol);
        let denied = match (decision.allowed, protocol, address) {
            (false, ..) => decision,
            (true, Protocol::Udp, _) => decision.but(Reason::Protocol(NO_UDP.into())),
            (true, _, SocketAddr::V6(_)) => decision.but(Reason::Protocol(NO_IPV6.into())),
            (true, ..) => decision.but(Reason::Unreachable(
                "no listener inside for this address and port; use the proxy".into(),
            )),
        };
        self.record_denials(denied, count);
    }

    /// A call named an address that can't be read.
    pub fn unreadable_address(&self, protocol: Protocol) {
        let reason = Reason::Malformed("the process does not let its memory be read".into());
        self.record_malformed("unreadable address", protocol, reason);
    }

    /// A query to another DNS server. The name is a denial of its own, unless rules allow it: then only
    /// the server is wrong.
    pub fn foreign_dns_query(&self, query: &[u8]) {
        let Ok(query) = Message::from_vec(query) else {
            return;
        };
        if query.metadata.message_type != MessageType::Query {
            return;
        }
        for question in &query.queries {
            let Ok(host @ Host::Name(_)) = Host::parse(&question.name().to_ascii()) else {
                continue;
            };
            let decision = self.shared.rules.current().decide_name(&host);
            if !decision.allowed {
                self.record_denied(decision);
            }
        }
    }

    /// `count` packets arrived faster than they could be read.
    pub fn packets_dropped(&self, count: u64, protocol: Protocol) {
        let reason = Reason::Limit(DROPPED);
        self.record_malformed(&format!("{count} more packets"), protocol, reason);
    }

    /// The host behind an address of the pool. The address keeps its name while the mark is held.
    pub(super) fn host_behind(&self, address: SocketAddr) -> (Host, Option<InUse>) {
        match lock(&self.shared.pool).name(address) {
            Some((name, in_use)) => (Host::Name(name), Some(in_use)),
            None => (Host::from(address.ip()), None),
        }
    }
}
