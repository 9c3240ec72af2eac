//! The network of one instance: a gateway outside that serves its doors, and the executions that
//! answer for what goes through them.

mod doors;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use brig_audit::{Carried, Egress};
use brig_egress::{Closed, Decided, Decision, Entry, Gateway, Pool, Record, Rules};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use self::doors::Doors;
use crate::shared::lock;
use crate::{Attempts, Error, Result};

/// A socket inside, and what is spoken on it.
#[derive(Debug)]
pub enum Door {
    Tcp(OwnedFd, Entry),
    /// DNS.
    Udp(OwnedFd),
}

/// Dropped, with all its clones, it closes every connection: then nothing leads out of the sandbox.
#[derive(Clone, Debug)]
pub struct Network {
    gateway: Gateway,
    running: Arc<Running>,
    _doors: Option<Arc<Doors>>,
    _serving: Arc<JoinSet<()>>,
}

impl Network {
    /// Serves the doors from now on.
    pub fn start(rules: Rules, doors: Vec<Door>) -> Result<Self> {
        let running = Arc::new(Running::default());
        let gateway = Gateway::builder(rules, Book(Arc::clone(&running))).build();
        let mut serving = JoinSet::new();
        let mut listeners = Vec::new();
        for door in doors {
            match door {
                Door::Tcp(socket, entry) => {
                    rustix::io::ioctl_fionbio(&socket, true)
                        .map_err(|error| unusable(error.into()))?;
                    listeners.push((socket, entry));
                }
                Door::Udp(socket) => {
                    let gateway = gateway.clone();
                    let socket = std::net::UdpSocket::from(socket);
                    socket.set_nonblocking(true).map_err(unusable)?;
                    let socket = UdpSocket::from_std(socket).map_err(unusable)?;
                    serving.spawn(async move { drop(gateway.serve_udp(socket).await) });
                }
            }
        }
        let (doors, accepted) = Doors::open(listeners).map_err(unusable)?;
        serving.spawn(serve(gateway.clone(), accepted));
        Ok(Self {
            gateway,
            running,
            _doors: Some(Arc::new(doors)),
            _serving: Arc::new(serving),
        })
    }

    /// For connections that are relayed. DNS hands out addresses from `pool` on.
    pub fn relayed(rules: Rules, pool: Pool) -> Self {
        let running = Arc::new(Running::default());
        let gateway = Gateway::builder(rules, Book(Arc::clone(&running))).pool(pool);
        Self {
            gateway: gateway.build(),
            running,
            _doors: None,
            _serving: Arc::default(),
        }
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The rules in force, to read and to change.
    pub fn rules(&self) -> &Rules {
        self.gateway.rules()
    }

    /// Lets an execution use the network until the answer is dropped.
    pub(crate) fn admit(&self, attempts: &Arc<Attempts>) -> Admitted {
        lock(&self.running.0).push(Arc::downgrade(attempts));
        Admitted {
            gateway: self.gateway.clone(),
            running: Arc::clone(&self.running),
            attempts: Arc::clone(attempts),
        }
    }
}

/// Dropped, it closes all connections.
async fn serve(gateway: Gateway, mut accepted: Receiver<(std::net::TcpStream, Entry)>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, entry) = tokio::select! {
            accepted = accepted.recv() => match accepted {
                Some(accepted) => accepted,
                None => break,
            },
            Some(_) = connections.join_next() => continue,
        };
        let (Ok(dialled), Ok(stream)) = (stream.local_addr(), TcpStream::from_std(stream)) else {
            continue;
        };
        // Small messages are what proxies carry.
        let _ = stream.set_nodelay(true);
        let gateway = gateway.clone();
        connections.spawn(async move { gateway.connection(stream, entry, Some(dialled)).await });
    }
    while connections.join_next().await.is_some() {}
}

fn unusable(error: io::Error) -> Error {
    Error::io("take the sandbox's network", error)
}

/// The executions of the moment. Those that run side by side share one network, so each answers
/// for what any of them does.
#[derive(Debug, Default)]
struct Running(Mutex<Vec<Weak<Attempts>>>);

impl Running {
    fn each(&self, tell: impl Fn(&Attempts) -> Result<()>) -> io::Result<()> {
        let running: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        if running.is_empty() {
            return Err(io::Error::other("nothing runs that would answer for it"));
        }
        running
            .iter()
            .try_for_each(|attempts| tell(attempts))
            .map_err(io::Error::other)
    }
}

/// Connections end with the last of those that could have made them.
#[derive(Debug)]
pub(crate) struct Admitted {
    gateway: Gateway,
    running: Arc<Running>,
    attempts: Arc<Attempts>,
}

impl Admitted {
    /// Ends the use of the network. What was open is closed and on record then.
    pub async fn leave(self) {
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

/// Where the gateway writes.
struct Book(Arc<Running>);

impl Record for Book {
    fn decided(&self, event: &Decided) -> io::Result<()> {
        let egress = fact(&event.decision, None);
        self.0.each(|attempts| attempts.egress(egress.clone()))
    }

    fn closed(&self, event: &Closed) {
        let carried = Carried {
            sent: event.sent,
            received: event.received,
            milliseconds: milliseconds(event.duration),
        };
        let mut egress = fact(&event.decision, Some(carried));
        if let Some(end) = &event.end {
            egress.code = end.code().into();
        }
        // That it was opened is on record. A log that fails ends what runs by itself.
        let _ = self
            .0
            .each(|attempts| attempts.egress_closed(egress.clone()));
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn fact(decision: &Decision, carried: Option<Carried>) -> Egress {
    Egress {
        allowed: decision.allowed,
        code: decision.reason.code().into(),
        rule: decision.rule.as_ref().map(ToString::to_string),
        layer: decision.layer.map(|layer| layer.to_string()),
        protocol: decision.protocol.to_string(),
        host: match &decision.host {
            Ok(host) => host.to_string(),
            Err(text) => text.escape_debug().to_string(),
        },
        port: decision.port.unwrap_or(0),
        carried,
    }
}
