//! Frames over the stream: one reader that sorts what comes, and senders that wait for credit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};

use brig_wire::{Decoder, Frame, FromGuest, GUEST_CHANNEL, Kind, MAX_DATA, ToGuest, Usage, WINDOW};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Mutex, Notify, oneshot, watch};
use tokio::task::AbortHandle;

use super::inbox::{self, Inbox, Incoming, Outbox};
use super::outgoing::Outgoing;
use crate::{Error, Result};

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

/// The request of which everything is an answer that nobody asked for.
const UNASKED: u32 = u32::MAX;

/// Visitors that may be in the house at once, more than an honest guest lets in.
const VISITORS: usize = 1024;

/// Where the frames of the guest go. Bounded by what was granted and by what one request may have
/// waiting: a guest that sends more than that breaks the protocol and is cut off.
#[derive(Debug, Default)]
struct Routes {
    /// By request id; 0 is the greeting.
    requests: HashMap<u32, Outbox>,
    /// Request and remaining credit, by channel that the guest sends on.
    receiving: HashMap<u32, (u32, u32)>,
    /// What the guest takes, by channel that we send on.
    sending: HashMap<u32, u32>,
    /// Why nothing more will come.
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

    /// Nothing more will come. The first reason is the one that counts.
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
    greeting: Mutex<Inbox>,
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
    }
}

impl Connection {
    pub fn start(stream: Stream) -> Self {
        let shared = Arc::new(Shared {
            routes: StdMutex::default(),
            credit_came: Notify::new(),
            outgoing: Outgoing::new(stream.to_guest),
            next: AtomicU32::new(1),
            usage: watch::Sender::default(),
        });
        let (outbox, greeting) = inbox::pair();
        shared.routes().requests.insert(0, outbox);
        let reader = tokio::spawn(read(stream.from_guest, Arc::clone(&shared))).abort_handle();
        let sending = Arc::clone(&shared);
        let writer = tokio::spawn(async move { sending.outgoing.drain().await }).abort_handle();
        Self {
            shared,
            reader,
            writer,
            greeting: Mutex::new(greeting),
        }
    }

    /// The guest's first message.
    pub async fn greeting(&self) -> Result<FromGuest> {
        let greeting = self.greeting.lock().await.recv().await;
        self.shared.routes().requests.remove(&0);
        match greeting {
            Some(Incoming::Message(message)) => Ok(message),
            _ => Err(self.lost()),
        }
    }

    pub fn is_open(&self) -> bool {
        self.shared.routes().closed.is_none()
    }

    /// The guest does not behave: whatever runs there is given up.
    pub fn cut(&self, reason: String) {
        self.reader.abort();
        self.shared.close(reason);
    }

    pub fn lost(&self) -> Error {
        let routes = self.shared.routes();
        Error::InstanceLost(
            routes
                .closed
                .clone()
                .unwrap_or_else(|| "the guest is gone".into()),
        )
    }

    /// A number nobody has used yet.
    pub fn number(&self) -> u32 {
        self.shared.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What a container uses, as its guest tells it.
    pub fn usage(&self) -> watch::Receiver<Usage> {
        self.shared.usage.subscribe()
    }

    /// Opens the way for what the guest tells without having been asked.
    pub fn open_unasked(&self) -> Result<(Inbox, Route)> {
        self.open(UNASKED, &[], &[])
    }

    /// Waits until all that the guest has told unasked so far was heard.
    pub async fn unasked_heard(&self) {
        let (heard, all_heard) = oneshot::channel();
        match self.shared.routes().requests.get(&UNASKED) {
            // Refused, or dropped unheard, it is answered too.
            Some(outbox) => drop(outbox.put(Incoming::Heard(heard), 0)),
            // Nobody is there to hear.
            None => return,
        }
        let _ = all_heard.await;
    }

    /// The way of a visitor, which was opened when it came.
    pub fn visitor(&self, channel: u32) -> Route {
        Route {
            shared: Arc::clone(&self.shared),
            id: channel,
            channels: vec![channel],
            answered: false,
        }
    }

    /// Opens the way back for a request, and the channels that the guest may send on for it and
    /// those that we do.
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

    /// Sends bytes on a channel, as fast as the guest takes them.
    pub async fn send_data(&self, channel: u32, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.wait_for_credit(channel).await?;
            let (now, rest) = bytes.split_at(bytes.len().min(room).min(MAX_DATA));
            if let Some(credit) = self.shared.routes().sending.get_mut(&channel) {
                *credit = credit.saturating_sub(now.len() as u32);
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

    /// Lets the guest send as much again as a data frame with this many bytes took.
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

/// Keeps the way back open. Dropped before there was an answer, it ends what was asked for.
pub struct Route {
    shared: Arc<Shared>,
    id: u32,
    channels: Vec<u32>,
    answered: bool,
}

impl Route {
    /// The guest has told the end of it.
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
            // Fails only if the guest is gone, and everything with it.
            let _ = self.shared.outgoing.push(&kill_frame(self.id));
        }
    }
}

async fn read(mut stream: Box<dyn AsyncRead + Send + Unpin>, shared: Arc<Shared>) {
    let reason = match sort(&mut stream, &shared).await {
        Ok(()) => "the guest is gone".to_owned(),
        Err(problem) => problem,
    };
    shared.close(reason);
}

async fn sort(stream: &mut (dyn AsyncRead + Send + Unpin), shared: &Shared) -> Result<(), String> {
    let mut decoder = Decoder::default();
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
                FromGuest::Dialled {
                    door,
                    address,
                    channel,
                } => match visit(routes, door, address, channel)? {
                    Some(visit) => (UNASKED, visit),
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
                // It is over for us; what is still on its way is of no use, but the guest must
                // get rid of it before it can forget what was asked.
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

/// Nothing if the house is full: visitors that have left may still be seen off here.
fn visit(
    routes: &mut Routes,
    door: u32,
    address: ([u8; 4], u16),
    channel: u32,
) -> Result<Option<Incoming>, String> {
    let (outbox, inbox) = inbox::pair();
    if channel & GUEST_CHANNEL == 0 || channel == UNASKED || routes.requests.contains_key(&channel)
    {
        return Err("the guest let somebody in who cannot be".into());
    }
    let ids = routes.requests.keys();
    if ids.filter(|id| **id & GUEST_CHANNEL != 0).count() > VISITORS {
        return Ok(None);
    }
    if routes.requests.contains_key(&UNASKED) {
        routes.requests.insert(channel, outbox);
        routes.receiving.insert(channel, (channel, WINDOW));
        routes.sending.insert(channel, WINDOW);
    }
    Ok(Some(Incoming::Visit {
        door,
        address,
        channel,
        inbox,
    }))
}

fn kill_frame(id: u32) -> Vec<u8> {
    // A number always fits.
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
        | FromGuest::Found { id, .. } => *id,
        FromGuest::Exited(exit) => exit.id,
        FromGuest::Usage(_)
        | FromGuest::Dialled { .. }
        | FromGuest::Datagram { .. }
        | FromGuest::Exec(_) => UNASKED,
    }
}

#[cfg(test)]
mod tests;
