//! The network of one instance: a gateway that serves its listeners, and the executions that its
//! connections are recorded for.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use brig_audit::{Carried, Egress, Times};
use brig_egress::{
    Acceptor, Closed, Decided, Decision, DnsSocket, Gateway, ListenerKind, Pool, Record, Rules,
};
use brig_sandbox::{Attempts, Error, Result};
use tokio::task::JoinSet;

use crate::lock;

/// A socket in the sandbox's network namespace.
#[derive(Debug)]
pub enum SandboxListener {
    Tcp(OwnedFd, ListenerKind),
    /// DNS.
    Udp(OwnedFd),
}

/// When the last clone is dropped, all connections are closed.
#[derive(Clone, Debug)]
pub struct Network {
    gateway: Gateway,
    running: Arc<RunningExecutions>,
    dns: Arc<Vec<Arc<DnsSocket>>>,
    /// Whether the network is off. Then the gateway only records and denies, and no rule can change
    /// that.
    closed: bool,
    serving: Arc<Mutex<Serving>>,
}

#[derive(Debug, Default)]
struct Serving {
    acceptors: Vec<Acceptor>,
    tasks: JoinSet<()>,
}

impl Network {
    /// Serves the listeners from now on.
    pub fn start(rules: Rules, sockets: Vec<SandboxListener>) -> Result<Self> {
        let running = Arc::new(RunningExecutions::default());
        let gateway = Gateway::builder(rules, EgressRecorder(Arc::clone(&running))).build();
        let mut serving = Serving::default();
        let (mut listeners, mut dns) = (Vec::new(), Vec::new());
        for socket in sockets {
            match socket {
                SandboxListener::Tcp(socket, kind) => listeners.push((socket, kind)),
                SandboxListener::Udp(socket) => {
                    let own = DnsSocket::new(socket, gateway.clone()).map_err(unusable)?;
                    let own = Arc::new(own);
                    dns.push(Arc::clone(&own));
                    serving.tasks.spawn(async move { own.serve().await });
                }
            }
        }
        if !listeners.is_empty() {
            serving.listen(&gateway, listeners)?;
        }
        Ok(Self {
            gateway,
            running,
            dns: Arc::new(dns),
            closed: false,
            serving: Arc::new(Mutex::new(serving)),
        })
    }

    /// Listens on one more socket.
    pub fn listen(&self, socket: OwnedFd, kind: ListenerKind) -> Result<()> {
        lock(&self.serving).listen(&self.gateway, vec![(socket, kind)])
    }

    /// No rule can open it, now or later. It only records attempts.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// For connections that the guest relays. DNS hands out the addresses of `pool`.
    pub fn relayed(rules: Rules, pool: Pool) -> Self {
        let running = Arc::new(RunningExecutions::default());
        let gateway = Gateway::builder(rules, EgressRecorder(Arc::clone(&running))).pool(pool);
        Self {
            gateway: gateway.build(),
            running,
            dns: Arc::default(),
            closed: false,
            serving: Arc::default(),
        }
    }

    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The rules in force, to read and to change.
    pub fn rules(&self) -> &Rules {
        self.gateway.rules()
    }

    /// Lets an execution use the network until the returned value is dropped.
    pub(crate) fn admit(&self, attempts: &Arc<Attempts>) -> Admitted {
        lock(&self.running.0).push(Arc::downgrade(attempts));
        Admitted {
            dns: Arc::clone(&self.dns),
            gateway: self.gateway.clone(),
            running: Arc::clone(&self.running),
            attempts: Arc::clone(attempts),
        }
    }
}

impl Serving {
    fn listen(&mut self, gateway: &Gateway, sockets: Vec<(OwnedFd, ListenerKind)>) -> Result<()> {
        let acceptor = gateway.accept(sockets).map_err(unusable)?;
        self.acceptors.push(acceptor);
        Ok(())
    }
}

fn unusable(error: io::Error) -> Error {
    Error::io("take the sandbox's network", error)
}

/// The running executions. Concurrent ones share one network, so what any of them does is recorded for
/// all of them.
#[derive(Debug, Default)]
struct RunningExecutions(Mutex<Vec<Weak<Attempts>>>);

impl RunningExecutions {
    fn each(&self, record: impl Fn(&Attempts) -> Result<()>) -> io::Result<()> {
        let running: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        if running.is_empty() {
            return Err(io::Error::other("no execution is running"));
        }
        running
            .iter()
            .try_for_each(|attempts| record(attempts))
            .map_err(io::Error::other)
    }
}

/// Connections end with the last execution that could have made them.
#[derive(Debug)]
pub(crate) struct Admitted {
    dns: Arc<Vec<Arc<DnsSocket>>>,
    gateway: Gateway,
    running: Arc<RunningExecutions>,
    attempts: Arc<Attempts>,
}

impl Admitted {
    /// Ends the use of the network. When this returns, connections are closed and recorded.
    pub(crate) async fn leave(self) {
        // A program may have exited without waiting for the answer to its last query.
        self.dns.iter().for_each(|dns| dns.answer_all());
        let alone = lock(&self.running.0).len() == 1;
        if alone {
            self.gateway.end_connections().await;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let own = Arc::as_ptr(&self.attempts);
        let mut running = lock(&self.running.0);
        running.retain(|other| other.as_ptr() != own);
        if running.is_empty() {
            drop(self.gateway.end_connections());
        }
    }
}

/// Records the gateway's decisions for the running executions.
struct EgressRecorder(Arc<RunningExecutions>);

impl Record for EgressRecorder {
    fn decided(&self, event: &Decided) -> io::Result<()> {
        let mut egress = egress(&event.decision, event.address, None);
        if event.count > 1 {
            let now = jiff::Timestamp::now();
            egress.times = Some(Times {
                count: event.count,
                first: now,
                last: now,
            });
        }
        self.0.each(|attempts| attempts.egress(egress.clone()))
    }

    fn closed(&self, event: &Closed) {
        let carried = Carried {
            sent: event.sent,
            received: event.received,
            milliseconds: milliseconds(event.duration),
        };
        let mut egress = egress(&event.decision, event.address, Some(carried));
        if let Some(end) = &event.end {
            egress.code = end.code().into();
            egress.detail = event.decision.ended(end).detail();
        }
        // The opening is recorded. A log that fails ends the execution anyway.
        let _ = self
            .0
            .each(|attempts| attempts.egress_closed(egress.clone()));
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn egress(decision: &Decision, address: Option<IpAddr>, carried: Option<Carried>) -> Egress {
    let address = address.or_else(|| decision.refused_address());
    Egress {
        allowed: decision.allowed,
        code: decision.reason.code().into(),
        rule: decision.rule.as_ref().map(ToString::to_string),
        layer: decision.layer.map(|layer| layer.to_string()),
        protocol: decision.protocol.to_string(),
        host: match &decision.host {
            Ok(host) => host.to_string(),
            Err(text) => text.clone(),
        },
        port: decision.port.unwrap_or(0),
        address: address.map(|address| address.to_string()),
        detail: decision.detail(),
        raw: decision.raw,
        carried,
        ..Egress::default()
    }
}
