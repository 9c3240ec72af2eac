//! Frames over the stream: one reader that dispatches what is received, and senders that wait for credit.
//!
//! The guest is not trusted. Every message needs an open route, data needs credit, and a guest that breaks
//! the protocol is disconnected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use brig_sandbox::{Error, Result};
use brig_wire::{
    Decoder, Frame, FromGuest, GUEST_CHANNEL, Kind, MAX_DATA, Seal, SealKey, ToGuest, Usage, WINDOW,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Mutex, Notify, oneshot, watch};
use tokio::task::AbortHandle;

use super::inbox::{self, Inbox, Incoming, Outbox};
use super::outgoing::Outgoing;

/// Both directions of the stream to a guest.
pub struct Stream {
    pub from_guest: Box<dyn AsyncRead + Send + Unpin>,
    pub to_guest: Box<dyn AsyncWrite + Send + Unpin>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// The id under which notifications are dispatched.
const NOTIFICATIONS: u32 = u32::MAX;

/// Relayed connections at one time: more than a correct guest accepts.
const MAX_RELAYED: usize = 1024;

/// Where the frames of the guest go. Bounded by credit, and by what may wait for one request. A guest that
/// sends more is disconnected.
#[derive(Debug, Default)]
struct Routes {
    /// By request id; 0 is the handshake.
    requests: HashMap<u32, Outbox>,
    /// Request and remaining credit, by channel that the guest sends on.
    receiving: HashMap<u32, (u32, u32)>,
    /// Remaining credit, by channel that this side sends on.
    sending: HashMap<u32, u32>,
    /// Why the connection is closed.
    closed: Option<String>,
}

struct Shared {
    routes: StdMutex<Routes>,
    credit_came: Notify,
    outgoing: Outgoing,
    next: AtomicU32,
    usage: watch::Sender<Usage>,
}

impl Shared {
    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection. The first reason counts.
    fn close(&self, reason: String) {
        {
            let mut routes = self.routes();
            routes.closed.get_or_insert(reason);
            routes.requests.clear();
        }
        self.credit_came.notify_waiters();
    }
}

pub struct Connection {
    shared: Arc<Shared>,
    reader: AbortHandle,
    writer: AbortHandle,
    heartbeat: OnceLock<AbortHandle>,
    handshake: Mutex<Inbox>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
        if let Some(heartbeat) = self.heartbeat.get() {
            heartbeat.abort();
        }
    }
}

impl Connection {
    /// `seal`: by which the frames of the guest are recognised.
    pub fn start(stream: Stream, seal: Option<SealKey>) -> Self {
        let shared = Arc::new(Shared {
            routes: StdMutex::default(),
            credit_came: Notify::new(),
            outgoing: Outgoing::new(stream.to_guest),
            next: AtomicU32::new(1),
            usage: watch::Sender::default(),
        });
        let (outbox, handshake) = inbox::pair();
        shared.routes().requests.insert(0, outbox);
        let reader =
            tokio::spawn(read(stream.from_guest, seal, Arc::clone(&shared))).abort_handle();
        let sending = Arc::clone(&shared);
        let writer = tokio::spawn(async move { sending.outgoing.drain().await }).abort_handle();
        Self {
            shared,
            reader,
            writer,
            heartbeat: OnceLock::new(),
            handshake: Mutex::new(handshake),
        }
    }

    /// Tells the guest from now on that its owner is there.
    pub fn start_heartbeat(&self, interval: Duration) {
        let shared = Arc::clone(&self.shared);
        self.heartbeat
            .get_or_init(|| tokio::spawn(beat(shared, interval)).abort_handle());
    }

    /// The guest's first message.
    pub async fn handshake(&self) -> Result<FromGuest> {
        let handshake = self.handshake.lock().await.recv().await;
        self.shared.routes().requests.remove(&0);
        match handshake {
            Some(Incoming::Message(message)) => Ok(message),
            _ => Err(self.lost()),
        }
    }

    pub fn is_open(&self) -> bool {
        self.shared.routes().closed.is_none()
    }

    /// Disconnects a guest that breaks the protocol.
    pub fn disconnect(&self, reason: String) {
        self.reader.abort();
        self.shared.close(reason);
    }

    pub fn lost(&self) -> Error {
        Error::InstanceLost(self.lost_reason())
    }

    /// Why the connection is closed.
    pub fn lost_reason(&self) -> String {
        let closed = self.shared.routes().closed.clone();
        closed.unwrap_or_else(|| "the guest has exited".into())
    }

    /// An unused id for a request or a channel.
    pub fn number(&self) -> u32 {
        self.shared.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What a container uses, as its guest reports it.
    pub fn usage(&self) -> watch::Receiver<Usage> {
        self.shared.usage.subscribe()
    }

    /// Opens the route for notifications.
    pub fn open_notifications(&self) -> Result<(Inbox, Route)> {
        self.open(NOTIFICATIONS, &[], &[])
    }

    /// Waits until all notifications that were received so far are processed.
    pub async fn notifications_processed(&self) {
        let (barrier, reached) = oneshot::channel();
        match self.shared.routes().requests.get(&NOTIFICATIONS) {
            // If it is refused or dropped, the wait ends too.
            Some(outbox) => drop(outbox.put(Incoming::Barrier(barrier), 0)),
            // Nobody processes notifications.
            None => return,
        }
        let _ = reached.await;
    }

    /// The route of a relayed connection, which was opened when it was accepted.
    pub fn relayed(&self, channel: u32) -> Route {
        Route {
            shared: Arc::clone(&self.shared),
            id: channel,
            channels: vec![channel],
            answered: false,
        }
    }

    /// Opens a route for the answers to a request, and its channels: `receiving` for the guest's data,
    /// `sending` for ours.
    pub fn open(&self, id: u32, receiving: &[u32], sending: &[u32]) -> Result<(Inbox, Route)> {
        let (outbox, inbox) = inbox::pair();
        let mut routes = self.shared.routes();
        if routes.closed.is_some() {
            drop(routes);
            return Err(self.lost());
        }
        routes.requests.insert(id, outbox);
        for channel in receiving {
            routes.receiving.insert(*channel, (id, WINDOW));
        }
        for channel in sending {
            routes.sending.insert(*channel, WINDOW);
        }
        let route = Route {
            shared: Arc::clone(&self.shared),
            id,
            channels: [receiving, sending].concat(),
            answered: false,
        };
        Ok((inbox, route))
    }

    pub fn send(&self, message: &ToGuest) -> Result<()> {
        let bytes = brig_wire::to_bytes(message).map_err(|error| Error::InvalidConfig {
            what: "request",
            problem: error.to_string(),
        })?;
        self.write(&brig_wire::encode(Kind::Control, 0, &bytes))
    }

    /// Sends bytes on a channel, as fast as the guest grants credit.
    pub async fn send_data(&self, channel: u32, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.wait_for_credit(channel).await?;
            let (now, rest) = bytes.split_at(bytes.len().min(room).min(MAX_DATA));
            if let Some(credit) = self.shared.routes().sending.get_mut(&channel) {
                *credit = credit.saturating_sub(u32::try_from(now.len()).unwrap_or(u32::MAX));
            }
            self.write(&brig_wire::encode(Kind::Data, channel, now))?;
            bytes = rest;
        }
        Ok(())
    }

    pub fn send_end(&self, channel: u32) -> Result<()> {
        self.shared.routes().sending.remove(&channel);
        self.write(&brig_wire::encode(Kind::End, channel, &[]))
    }

    /// Grants the credit back that a data frame of this length has used.
    pub fn grant(&self, channel: u32, length: usize) -> Result<()> {
        match self.shared.routes().receiving.get_mut(&channel) {
            Some((_, credit)) => *credit = credit.saturating_add(brig_wire::cost(length)),
            None => return Ok(()),
        }
        self.write(&credit_frame(channel, length))
    }

    async fn wait_for_credit(&self, channel: u32) -> Result<usize> {
        loop {
            let came = self.shared.credit_came.notified();
            {
                let routes = self.shared.routes();
                if routes.closed.is_some() {
                    drop(routes);
                    return Err(self.lost());
                }
                match routes.sending.get(&channel) {
                    Some(0) => {}
                    Some(credit) => return Ok(*credit as usize),
                    None => return Err(Error::Protocol("data on a closed channel".into())),
                }
            }
            came.await;
        }
    }

    fn write(&self, frame: &[u8]) -> Result<()> {
        self.shared.outgoing.push(frame).map_err(|_| self.lost())
    }
}

/// Keeps a route open. If it is dropped before the answer, the request is cancelled.
pub struct Route {
    shared: Arc<Shared>,
    id: u32,
    channels: Vec<u32>,
    answered: bool,
}

impl Route {
    /// The guest has answered.
    pub fn answered(&mut self) {
        self.answered = true;
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        let mut routes = self.shared.routes();
        routes.requests.remove(&self.id);
        for channel in &self.channels {
            routes.receiving.remove(channel);
            routes.sending.remove(channel);
        }
        drop(routes);
        if !self.answered {
            // Fails only if the guest has exited, and with it the request.
            let _ = self.shared.outgoing.push(&kill_frame(self.id));
        }
    }
}

async fn beat(shared: Arc<Shared>, interval: Duration) {
    let Ok(bytes) = brig_wire::to_bytes(&ToGuest::Heartbeat) else {
        return;
    };
    let frame = brig_wire::encode(Kind::Control, 0, &bytes);
    loop {
        tokio::time::sleep(interval).await;
        if shared.outgoing.push(&frame).is_err() {
            return;
        }
    }
}

async fn read(
    mut stream: Box<dyn AsyncRead + Send + Unpin>,
    seal: Option<SealKey>,
    shared: Arc<Shared>,
) {
    let mut decoder = Decoder::sealed(seal.map(Seal::new));
    let reason = match dispatch(&mut stream, &mut decoder, &shared).await {
        Ok(()) => "the guest has exited".to_owned(),
        Err(problem) => problem,
    };
    shared.close(reason);
}

async fn dispatch(
    stream: &mut (dyn AsyncRead + Send + Unpin),
    decoder: &mut Decoder,
    shared: &Shared,
) -> Result<(), String> {
    let mut buffer = vec![0; MAX_DATA];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => decoder.feed(&buffer[..count]),
        }
        while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
            deliver(frame, shared)?;
        }
    }
}

fn deliver(frame: Frame, shared: &Shared) -> Result<(), String> {
    let mut routes = shared.routes();
    let routes = &mut *routes;
    let length = frame.payload.len();
    let (id, incoming) = match frame.kind {
        Kind::Control => {
            let message: FromGuest =
                brig_wire::from_bytes(&frame.payload).map_err(|error| error.to_string())?;
            match message {
                FromGuest::Usage(usage) => {
                    shared.usage.send_replace(usage);
                    return Ok(());
                }
                FromGuest::Accepted {
                    listener,
                    address,
                    channel,
                } => match open_relayed(routes, listener, address, channel)? {
                    Some(accepted) => (NOTIFICATIONS, accepted),
                    None => {
                        return shared
                            .outgoing
                            .push(&kill_frame(channel))
                            .map_err(|error| error.to_string());
                    }
                },
                message => (request_of(&message), Incoming::Message(message)),
            }
        }
        Kind::Data if length == 0 => return Err("the guest sent an empty frame".into()),
        Kind::Data => {
            let Some((id, credit)) = routes.receiving.get_mut(&frame.channel) else {
                // The request is over here. The credit is still granted, so that the guest can send the
                // rest and finish too.
                let frame = credit_frame(frame.channel, length);
                return shared
                    .outgoing
                    .push(&frame)
                    .map_err(|error| error.to_string());
            };
            *credit = credit
                .checked_sub(brig_wire::cost(length))
                .ok_or("the guest sent more than it may")?;
            (
                *id,
                Incoming::Data {
                    channel: frame.channel,
                    bytes: frame.payload.into(),
                },
            )
        }
        Kind::End => {
            let Some((id, _)) = routes.receiving.remove(&frame.channel) else {
                return Ok(());
            };
            (id, Incoming::End)
        }
        Kind::Credit => {
            if let (Some(amount), Some(credit)) =
                (frame.credit(), routes.sending.get_mut(&frame.channel))
            {
                *credit = credit.saturating_add(amount).min(WINDOW);
                shared.credit_came.notify_waiters();
            }
            return Ok(());
        }
    };
    match routes.requests.get(&id) {
        Some(outbox) => outbox.put(incoming, length),
        None => Ok(()),
    }
}

/// `None` at the limit of connections: closed ones may still be open here.
fn open_relayed(
    routes: &mut Routes,
    listener: u32,
    address: ([u8; 4], u16),
    channel: u32,
) -> Result<Option<Incoming>, String> {
    let (outbox, inbox) = inbox::pair();
    if channel & GUEST_CHANNEL == 0
        || channel == NOTIFICATIONS
        || routes.requests.contains_key(&channel)
    {
        return Err("the guest reported a connection that cannot exist".into());
    }
    let ids = routes.requests.keys();
    if ids.filter(|id| **id & GUEST_CHANNEL != 0).count() > MAX_RELAYED {
        return Ok(None);
    }
    if routes.requests.contains_key(&NOTIFICATIONS) {
        routes.requests.insert(channel, outbox);
        routes.receiving.insert(channel, (channel, WINDOW));
        routes.sending.insert(channel, WINDOW);
    }
    Ok(Some(Incoming::Accepted {
        listener,
        address,
        channel,
        inbox,
    }))
}

fn kill_frame(id: u32) -> Vec<u8> {
    // Can't fail: the message is short.
    let bytes = brig_wire::to_bytes(&ToGuest::Kill { id }).unwrap_or_default();
    brig_wire::encode(Kind::Control, 0, &bytes)
}

fn credit_frame(channel: u32, length: usize) -> Vec<u8> {
    let amount = brig_wire::cost(length);
    brig_wire::encode(Kind::Credit, channel, &amount.to_le_bytes())
}

fn request_of(message: &FromGuest) -> u32 {
    match message {
        FromGuest::Ready { .. } | FromGuest::SetupFailed { .. } => 0,
        FromGuest::SpawnFailed { id, .. }
        | FromGuest::Done { id, .. }
        | FromGuest::Failed { id, .. }
        | FromGuest::Listing { id, .. }
        | FromGuest::Checked { id, .. }
        | FromGuest::Found { id, .. } => *id,
        FromGuest::Exited(exit) => exit.id,
        FromGuest::Usage(_)
        | FromGuest::Accepted { .. }
        | FromGuest::Datagram { .. }
        | FromGuest::Exec(_)
        | FromGuest::Unreachable(_) => NOTIFICATIONS,
    }
}

#[cfg(test)]
mod tests;
