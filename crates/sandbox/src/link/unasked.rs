//! What a guest in a container tells without having been asked: visitors to its doors, which are
//! served as if they had come here, and programs that are about to be started.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use brig_audit::Command;
use brig_egress::{Entry, Gateway};
use brig_wire::{Exec, FromGuest, MAX_DATAGRAM, ToGuest};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::Connection;
use super::inbox::{Inbox, Incoming};
use crate::network::Network;
use crate::shared::lock;
use crate::{Attempts, Error, Result};

/// How much of a visitor's bytes may lie here.
const BUFFER: usize = 64 * 1024;

/// What to put on record of a program that is about to be started, if anything.
pub trait Judge: Send + Sync {
    fn judge(&self, exec: Exec) -> Option<Command>;
}

/// What becomes of it.
#[derive(Default)]
pub struct Unasked {
    /// The way out, and what is spoken at each door; nothing for DNS over UDP.
    pub network: Option<(Network, Vec<Option<Entry>>)>,
    pub judge: Option<Box<dyn Judge>>,
}

impl fmt::Debug for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unasked")
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

/// Hears the guest until it is dropped.
#[derive(Debug)]
pub struct Listening {
    network: Option<Network>,
    running: Arc<Running>,
    task: AbortHandle,
}

/// The executions of the moment.
type Running = Mutex<HashMap<u32, Weak<Attempts>>>;

impl Listening {
    pub fn start(connection: &Arc<Connection>, unasked: Unasked) -> Result<Self> {
        let (inbox, route) = connection.open_unasked()?;
        let running = Arc::new(Running::default());
        let network = unasked.network.as_ref().map(|(network, _)| network.clone());
        let house = House {
            // Whoever drops the instance means the end of it.
            connection: Arc::downgrade(connection),
            unasked,
            running: Arc::clone(&running),
        };
        let task = tokio::spawn(async move {
            house.listen(inbox).await;
            drop(route);
        });
        Ok(Self {
            network,
            running,
            task: task.abort_handle(),
        })
    }

    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Tells this execution of commands until the answer is dropped.
    pub fn hear(&self, id: u32, attempts: &Arc<Attempts>) -> Heard {
        lock(&self.running).insert(id, Arc::downgrade(attempts));
        Heard {
            running: Arc::clone(&self.running),
            id,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
pub struct Heard {
    running: Arc<Running>,
    id: u32,
}

impl Drop for Heard {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.id);
    }
}

struct House {
    connection: Weak<Connection>,
    unasked: Unasked,
    running: Arc<Running>,
}

impl House {
    async fn listen(self, mut inbox: Inbox) {
        let mut visitors = JoinSet::new();
        loop {
            let incoming = tokio::select! {
                incoming = inbox.recv() => incoming,
                Some(_) = visitors.join_next() => continue,
            };
            let (Some(incoming), Some(connection)) = (incoming, self.connection.upgrade()) else {
                return;
            };
            let guest = Arc::clone(&connection);
            let heard = match incoming {
                Incoming::Visit {
                    door,
                    address,
                    channel,
                    inbox,
                } => self.entry(door).map(|(gateway, entry)| {
                    let dialled = SocketAddr::from((Ipv4Addr::from(address.0), address.1));
                    visitors.spawn(async move {
                        serve(&connection, gateway, entry, dialled, channel, inbox).await;
                    });
                }),
                Incoming::Message(FromGuest::Datagram { door, from, bytes }) => {
                    self.datagram(&connection, door, from, &bytes)
                }
                Incoming::Message(FromGuest::Exec(exec)) => {
                    self.command(*exec);
                    Ok(())
                }
                Incoming::Heard(heard) => {
                    let _ = heard.send(());
                    Ok(())
                }
                other => Err(Error::Protocol(format!("unexpected: {}", other.name()))),
            };
            if let Err(error) = heard {
                return guest.cut(error.to_string());
            }
        }
    }

    fn entry(&self, door: u32) -> Result<(Gateway, Entry)> {
        let unknown = || Error::Protocol("a door that was not asked for".into());
        let (network, doors) = self.unasked.network.as_ref().ok_or_else(unknown)?;
        let entry = doors.get(door as usize).copied().flatten();
        Ok((network.gateway().clone(), entry.ok_or_else(unknown)?))
    }

    fn datagram(
        &self,
        connection: &Connection,
        door: u32,
        from: ([u8; 4], u16),
        bytes: &[u8],
    ) -> Result<()> {
        let unknown = || Error::Protocol("a door that was not asked for".into());
        let (network, doors) = self.unasked.network.as_ref().ok_or_else(unknown)?;
        if doors.get(door as usize) != Some(&None) || bytes.len() > MAX_DATAGRAM {
            return Err(unknown());
        }
        match network.gateway().answer_dns(bytes) {
            Some(bytes) => connection.send(&ToGuest::Datagram { door, from, bytes }),
            None => Ok(()),
        }
    }

    fn command(&self, exec: Exec) {
        let id = exec.id;
        let Some(command) = (self.unasked.judge.as_ref()).and_then(|judge| judge.judge(exec))
        else {
            return;
        };
        let attempts = lock(&self.running).get(&id).and_then(Weak::upgrade);
        if let Some(attempts) = attempts {
            // What can't be recorded ends the execution by itself.
            let _ = attempts.command(command);
        }
    }
}

/// Serves one visitor to its end.
async fn serve(
    connection: &Connection,
    gateway: Gateway,
    entry: Entry,
    dialled: SocketAddr,
    channel: u32,
    inbox: Inbox,
) {
    // Dropped, it makes the guest close its end.
    let _route = connection.visitor(channel);
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (from_gateway, to_gateway) = tokio::io::split(ours);
    let served = gateway.connection(theirs, entry, Some(dialled));
    let answered = async { tokio::join!(served, down(connection, channel, from_gateway)) };
    tokio::select! {
        _ = answered => {}
        () = up(connection, channel, inbox, to_gateway) => {}
    }
}

/// From the visitor to the gateway. Ends only if the visitor was lost.
async fn up(
    connection: &Connection,
    channel: u32,
    mut inbox: Inbox,
    mut to: tokio::io::WriteHalf<DuplexStream>,
) {
    loop {
        match inbox.recv().await {
            Some(Incoming::Data { bytes, .. }) => {
                // What nobody wants any more is taken and forgotten.
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
