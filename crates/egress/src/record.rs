//! What becomes of every decision.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Decision, Reason};

/// Takes note of what was decided. Called from many tasks; must not wait long.
pub trait Record: Send + Sync + 'static {
    /// Before anything is sent out. An error turns the decision into a denial.
    fn decided(&self, event: &Decided) -> io::Result<()>;

    /// At the end of a connection or request that was allowed.
    fn closed(&self, event: &Closed);
}

/// A decision was made.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Counts up within a gateway.
    pub id: u64,
    pub decision: Decision,
    /// The address that will be dialled.
    pub address: Option<IpAddr>,
    /// The execution that was running, as far as the owner said.
    pub execution: Option<Arc<str>>,
}

/// What was allowed has ended.
#[derive(Clone, Debug)]
pub struct Closed {
    /// That of the decision.
    pub id: u64,
    pub decision: Decision,
    pub address: Option<IpAddr>,
    pub execution: Option<Arc<str>>,
    /// Bytes out of the sandbox.
    pub sent: u64,
    /// Bytes into the sandbox.
    pub received: u64,
    pub duration: Duration,
    /// Why it ended, unless one side was done.
    pub end: Option<Reason>,
}
