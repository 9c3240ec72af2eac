//! Messages that a guest in a container sends without a request: connections to its listeners, which are
//! served here, calls with unreachable addresses, and starts of programs.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use brig_audit::Command;
use brig_egress::{Gateway, ListenerKind, Protocol};
use brig_sandbox::{Attempts, Error, Result};
use brig_wire::{Exec, FromGuest, MAX_DATAGRAM, MAX_QUERY, ToGuest, Transport, Unreachable};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::Connection;
use super::inbox::{Inbox, Incoming};
use crate::listeners::Service;
use crate::lock;
use crate::network::Network;
use crate::tools::ToolServer;

/// Bytes of a relayed connection that wait for the gateway.
const BUFFER: usize = 64 * 1024;

/// Decides what is recorded about the start of a program.
pub trait CommandObserver: Send + Sync {
    fn observe(&self, exec: Exec) -> Option<Command>;
}

/// What to do with notifications.
#[derive(Default)]
pub struct Notifications {
    /// The network, and the service of each listener.
    pub network: Option<(Network, Vec<Service>)>,
    pub tools: Option<ToolServer>,
    pub observer: Option<Box<dyn CommandObserver>>,
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications")
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

/// Handles notifications until it is dropped.
#[derive(Debug)]
pub(super) struct NotificationServer {
    network: Option<Network>,
    running: Arc<RunningExecutions>,
    task: AbortHandle,
}

/// The running executions, by id.
type RunningExecutions = Mutex<HashMap<u32, Weak<Attempts>>>;

impl NotificationServer {
    pub(super) fn start(
        connection: &Arc<Connection>,
        notifications: Notifications,
    ) -> Result<Self> {
        let (inbox, route) = connection.open_notifications()?;
        let running = Arc::new(RunningExecutions::default());
        let network = notifications
            .network
            .as_ref()
            .map(|(network, _)| network.clone());
        let server = RelayServer {
            // Weak, so that dropping the instance closes the connection.
            connection: Arc::downgrade(connection),
            notifications,
            running: Arc::clone(&running),
        };
        let task = tokio::spawn(async move {
            server.run(inbox).await;
            drop(route);
        });
        Ok(Self {
            network,
            running,
            task: task.abort_handle(),
        })
    }

    pub(super) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Records commands for this execution until the returned value is dropped.
    pub(super) fn route(&self, id: u32, attempts: &Arc<Attempts>) -> ExecutionRoute {
        lock(&self.running).insert(id, Arc::downgrade(attempts));
        ExecutionRoute {
            running: Arc::clone(&self.running),
            id,
        }
    }
}

impl Drop for NotificationServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
pub(super) struct ExecutionRoute {
    running: Arc<RunningExecutions>,
    id: u32,
}

impl Drop for ExecutionRoute {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.id);
    }
}

struct RelayServer {
    connection: Weak<Connection>,
    notifications: Notifications,
    running: Arc<RunningExecutions>,
}

impl RelayServer {
    async fn run(self, mut inbox: Inbox) {
        let mut connections = JoinSet::new();
        loop {
            let incoming = tokio::select! {
                incoming = inbox.recv() => incoming,
                Some(_) = connections.join_next() => continue,
            };
            let (Some(incoming), Some(connection)) = (incoming, self.connection.upgrade()) else {
                return;
            };
            let guest = Arc::clone(&connection);
            let handled = match incoming {
                Incoming::Accepted {
                    listener,
                    address,
                    channel,
                    inbox,
                } => self.service_for(listener).map(|service| {
                    let dialled = SocketAddr::from((Ipv4Addr::from(address.0), address.1));
                    connections.spawn(async move {
                        serve(&connection, service, dialled, channel, inbox).await;
                    });
                }),
                Incoming::Message(FromGuest::Datagram {
                    listener,
                    from,
                    bytes,
                }) => self.datagram(&connection, listener, from, &bytes),
                Incoming::Message(FromGuest::Exec(exec)) => {
                    self.command(*exec);
                    Ok(())
                }
                Incoming::Message(FromGuest::Unreachable(calls)) => self.unreachable(&calls),
                Incoming::Barrier(reached) => {
                    let _ = reached.send(());
                    Ok(())
                }
                other => Err(Error::Protocol(format!("unexpected: {}", other.name()))),
            };
            if let Err(error) = handled {
                return guest.disconnect(error.to_string());
            }
        }
    }

    fn service_for(&self, listener: u32) -> Result<Served> {
        let unknown = || Error::Protocol("a listener that was not requested".into());
        let (network, services) = self.notifications.network.as_ref().ok_or_else(unknown)?;
        let service = services.get(listener as usize).copied();
        match (service, &self.notifications.tools) {
            (Some(Service::Gateway(kind)), _) => {
                Ok(Served::Gateway(network.gateway().clone(), kind))
            }
            (Some(Service::Tools), Some(tools)) => Ok(Served::Tools(tools.clone())),
            _ => Err(unknown()),
        }
    }

    fn datagram(
        &self,
        connection: &Connection,
        listener: u32,
        from: ([u8; 4], u16),
        bytes: &[u8],
    ) -> Result<()> {
        let unknown = || Error::Protocol("a listener that was not requested".into());
        let (network, services) = self.notifications.network.as_ref().ok_or_else(unknown)?;
        if services.get(listener as usize) != Some(&Service::Dns) || bytes.len() > MAX_DATAGRAM {
            return Err(unknown());
        }
        match network.gateway().answer_dns(bytes) {
            Some(bytes) => connection.send(&ToGuest::Datagram {
                listener,
                from,
                bytes,
            }),
            None => Ok(()),
        }
    }

    fn unreachable(&self, calls: &Unreachable) -> Result<()> {
        let unknown = || Error::Protocol("an unexpected report of an address".into());
        let (network, _) = self.notifications.network.as_ref().ok_or_else(unknown)?;
        if calls.query.len() > MAX_QUERY {
            return Err(unknown());
        }
        let protocol = match calls.transport {
            Transport::Tcp => Protocol::Tcp,
            Transport::Udp => Protocol::Udp,
        };
        let gateway = network.gateway();
        let Some(to) = calls.to else {
            gateway.unreadable_address(protocol);
            return Ok(());
        };
        gateway.foreign_dns_query(&calls.query);
        gateway.calls_to(to, protocol, calls.count.into());
        Ok(())
    }

    fn command(&self, exec: Exec) {
        let id = exec.id;
        let Some(command) =
            (self.notifications.observer.as_ref()).and_then(|observer| observer.observe(exec))
        else {
            return;
        };
        let attempts = lock(&self.running).get(&id).and_then(Weak::upgrade);
        if let Some(attempts) = attempts {
            // If it can't be recorded, that ends the execution.
            let _ = attempts.command(command);
        }
    }
}

/// What serves a relayed connection.
enum Served {
    Gateway(Gateway, ListenerKind),
    Tools(ToolServer),
}

/// Serves one relayed connection to its end.
async fn serve(
    connection: &Connection,
    service: Served,
    dialled: SocketAddr,
    channel: u32,
    inbox: Inbox,
) {
    // When this is dropped, the guest closes its end.
    let _route = connection.relayed(channel);
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (from_gateway, to_gateway) = tokio::io::split(ours);
    let served = async {
        match service {
            Served::Gateway(gateway, kind) => {
                gateway.connection(theirs, kind, Some(dialled)).await;
            }
            Served::Tools(tools) => tools.serve(theirs).await,
        }
    };
    let answered = async { tokio::join!(served, down(connection, channel, from_gateway)) };
    tokio::select! {
        _ = answered => {}
        () = up(connection, channel, inbox, to_gateway) => {}
    }
}

/// From the program to the gateway. Ends only if the connection is lost.
async fn up(
    connection: &Connection,
    channel: u32,
    mut inbox: Inbox,
    mut to: tokio::io::WriteHalf<DuplexStream>,
) {
    loop {
        match inbox.recv().await {
            Some(Incoming::Data { bytes, .. }) => {
                // If the gateway has closed its end, the bytes are dropped.
                let _ = to.write_all(&bytes).await;
                if connection.grant(channel, bytes.len()).is_err() {
                    return;
                }
            }
            Some(Incoming::End) => {
                let _ = to.shutdown().await;
                return std::future::pending().await;
            }
            _ => return,
        }
    }
}

async fn down(connection: &Connection, channel: u32, mut from: tokio::io::ReadHalf<DuplexStream>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if connection
            .send_data(channel, &buffer[..count])
            .await
            .is_err()
        {
            return;
        }
    }
    let _ = connection.send_end(channel);
}
