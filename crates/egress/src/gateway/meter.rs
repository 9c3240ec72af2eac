//! Counts what passes, and tells what has ended.

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
}

impl Meter {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            last: AtomicU64::new(0),
        })
    }

    pub fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    pub fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    fn touch(&self) {
        self.last
            .store(self.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Returns once nothing has passed for that long.
    pub async fn idle(&self, limit: Duration) {
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

/// Something that was allowed and recorded. Tells its end when it is dropped.
pub(super) struct Ticket {
    pub gateway: Gateway,
    pub id: u64,
    pub decision: Decision,
    pub address: Option<IpAddr>,
    pub execution: Option<Arc<str>>,
    pub meter: Arc<Meter>,
    /// What the meter showed at the beginning.
    before: (u64, u64),
    began: Instant,
    end: Mutex<Option<Reason>>,
}

impl Ticket {
    pub fn new(
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

    /// Why it ends, if not because one side is done. The first reason counts.
    pub fn ends(&self, reason: Reason) {
        lock(&self.end).get_or_insert(reason);
    }

    /// Returns once the rules no longer allow it.
    pub async fn revoked(&self) {
        let mut rules = self.gateway.shared.rules.watch();
        loop {
            let current = rules.borrow_and_update().clone();
            if current.generation() != self.decision.generation && !self.holds(&current) {
                return;
            }
            if rules.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn holds(&self, rules: &RuleSet) -> bool {
        holds(&self.decision, self.address, rules)
    }
}

/// Whether what was decided would be decided again.
pub(super) fn holds(decision: &Decision, address: Option<IpAddr>, rules: &RuleSet) -> bool {
    let (Ok(host), Some(port)) = (&decision.host, decision.port) else {
        return false;
    };
    let led_to = address.filter(|_| matches!(host, Host::Name(_)));
    rules.decide(host, port, decision.protocol).allowed
        && led_to.is_none_or(|address| rules.check_address(address, port).is_ok())
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (sent, received) = (&self.meter.sent, &self.meter.received);
        self.gateway.shared.record.closed(&Closed {
            id: self.id,
            decision: self.decision.clone(),
            address: self.address,
            execution: self.execution.clone(),
            sent: sent.load(Relaxed).saturating_sub(self.before.0),
            received: received.load(Relaxed).saturating_sub(self.before.1),
            duration: self.began.elapsed(),
            end: lock(&self.end).take(),
        });
    }
}
