//! Counts the bytes of connections, and records their end.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brig_hosts::Host;

use super::{Gateway, lock};
use crate::decision::{Decision, Reason};
use crate::record::Closed;
use crate::rules::RuleSet;

/// Bytes through one connection to the outside, and when the last one came.
#[derive(Debug)]
pub(super) struct Meter {
    began: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    last: AtomicU64,
    /// What tickets have recorded of both. A connection may have several tickets, nested in each other.
    recorded: Mutex<(u64, u64)>,
}

impl Meter {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            last: AtomicU64::new(0),
            recorded: Mutex::default(),
        })
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    /// The bytes since `before` that no ticket has recorded yet.
    fn take_unrecorded(&self, before: (u64, u64)) -> (u64, u64) {
        let mut recorded = lock(&self.recorded);
        let sent = self.sent.load(Relaxed);
        let received = self.received.load(Relaxed);
        let sent = sent.saturating_sub(before.0.max(recorded.0));
        let received = received.saturating_sub(before.1.max(recorded.1));
        recorded.0 += sent;
        recorded.1 += received;
        (sent, received)
    }

    fn touch(&self) {
        let passed = self.began.elapsed().as_millis();
        self.last
            .store(u64::try_from(passed).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns when no byte has passed for this time.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Relaxed));
            let silent = self.began.elapsed().saturating_sub(last);
            if silent >= limit {
                return;
            }
            tokio::time::sleep(limit - silent).await;
        }
    }
}

/// A connection or request that was allowed and recorded. Its end is recorded when this is dropped.
pub(super) struct Ticket {
    pub gateway: Gateway,
    pub id: u64,
    pub decision: Decision,
    pub address: Option<IpAddr>,
    pub execution: Option<Arc<str>>,
    pub meter: Arc<Meter>,
    /// The meter at the beginning.
    before: (u64, u64),
    began: Instant,
    end: Mutex<Option<Reason>>,
}

impl Ticket {
    pub(super) fn new(
        gateway: &Gateway,
        id: u64,
        decision: Decision,
        address: Option<IpAddr>,
        execution: Option<Arc<str>>,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            gateway: gateway.clone(),
            id,
            decision,
            address,
            execution,
            before: (meter.sent.load(Relaxed), meter.received.load(Relaxed)),
            meter,
            began: Instant::now(),
            end: Mutex::new(None),
        }
    }

    /// Why it ends, if not because one side has closed it. The first reason counts.
    pub(super) fn ends(&self, reason: Reason) {
        lock(&self.end).get_or_insert(reason);
    }

    /// Returns when the rules no longer allow it. The future does not keep the ticket.
    pub(super) fn revoked(&self) -> impl Future<Output = ()> + use<> {
        let mut rules = self.gateway.shared.rules.watch();
        let (decision, address) = (self.decision.clone(), self.address);
        async move {
            loop {
                let current = rules.borrow_and_update().clone();
                if current.generation() != decision.generation
                    && !still_allowed(&decision, address, &current)
                {
                    return;
                }
                if rules.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }
}

/// Whether the current rules would make the same decision.
pub(super) fn still_allowed(decision: &Decision, address: Option<IpAddr>, rules: &RuleSet) -> bool {
    let (Ok(host), Some(port)) = (&decision.host, decision.port) else {
        return false;
    };
    let led_to = address.filter(|_| matches!(host, Host::Name(_)));
    let now = rules.decide(host, port, decision.protocol);
    let as_before = !decision.raw || now.raw || rules.is_open_to_raw(port);
    now.allowed
        && as_before
        && led_to.is_none_or(|address| rules.check_address(address, port).is_ok())
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (sent, received) = self.meter.take_unrecorded(self.before);
        self.gateway.shared.record.closed(&Closed {
            id: self.id,
            decision: self.decision.clone(),
            address: self.address,
            execution: self.execution.clone(),
            sent,
            received,
            duration: self.began.elapsed(),
            end: lock(&self.end).take(),
        });
    }
}
