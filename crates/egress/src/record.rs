//! Recording of decisions.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Decision, Reason};

/// Records decisions. Called from many tasks, so it must not block for long.
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
    /// What was decided, with the rule and the reason.
    pub decision: Decision,
    /// The address that will be dialled.
    pub address: Option<IpAddr>,
    /// The execution that was running, if it is known.
    pub execution: Option<Arc<str>>,
    /// How many equal decisions this stands for.
    pub count: u64,
}

/// What was allowed has ended.
#[derive(Clone, Debug)]
pub struct Closed {
    /// That of the decision.
    pub id: u64,
    /// The decision that allowed it.
    pub decision: Decision,
    /// The address that was dialled, successfully or not. `None` if the name could not be resolved.
    pub address: Option<IpAddr>,
    /// The execution that was running when it was allowed, if it is known.
    pub execution: Option<Arc<str>>,
    /// Bytes out of the sandbox.
    pub sent: u64,
    /// Bytes into the sandbox.
    pub received: u64,
    /// From the record of the decision to the end.
    pub duration: Duration,
    /// Why it ended, unless one side closed it.
    pub end: Option<Reason>,
}
