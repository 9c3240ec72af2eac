//! What has come for one request and was not taken yet. The guest is not trusted to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brig_wire::{FromGuest, LISTING_PART};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// What comes back for one request.
#[derive(Debug)]
pub enum Incoming {
    Message(FromGuest),
    Data {
        channel: u32,
        bytes: Bytes,
    },
    End,
    /// Somebody came to a door of the guest's.
    Visit {
        door: u32,
        address: ([u8; 4], u16),
        channel: u32,
        inbox: Inbox,
    },
    /// Of our own: everything before it was heard.
    Heard(oneshot::Sender<()>),
}

impl Incoming {
    /// For messages about what should not have come: not its contents, which are the guest's.
    pub fn name(&self) -> &'static str {
        match self {
            Incoming::Data { .. } => "data",
            Incoming::End => "end of data",
            Incoming::Heard(_) => "nothing",
            Incoming::Message(FromGuest::Ready { .. }) => "ready",
            Incoming::Message(FromGuest::SetupFailed { .. }) => "setup failed",
            Incoming::Message(FromGuest::SpawnFailed { .. }) => "spawn failed",
            Incoming::Message(FromGuest::Exited(_)) => "exited",
            Incoming::Message(FromGuest::Done { .. }) => "done",
            Incoming::Message(FromGuest::Failed { .. }) => "failed",
            Incoming::Message(FromGuest::Listing { .. }) => "listing",
            Incoming::Message(FromGuest::Found { .. }) => "found",
            Incoming::Message(FromGuest::Usage(_)) => "usage",
            Incoming::Visit { .. } | Incoming::Message(FromGuest::Dialled { .. }) => "visitor",
            Incoming::Message(FromGuest::Datagram { .. }) => "datagram",
            Incoming::Message(FromGuest::Exec(_)) => "command",
        }
    }
}

/// Bytes that may wait, more than the longest listing and all credit need.
const MOST: usize = 64 * 1024 * 1024;
/// What keeping one costs on top of its bytes.
const EACH: usize = 128;
/// A file system's longest name.
const LONGEST_NAME: usize = 255;

/// Whether a folder can hold something of this name. Callers may make a path of it.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= LONGEST_NAME
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[derive(Debug)]
pub struct Inbox {
    receiver: mpsc::UnboundedReceiver<(Incoming, usize)>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::UnboundedSender<(Incoming, usize)>,
    waiting: Arc<AtomicUsize>,
}

pub fn pair() -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox {
        sender,
        waiting: Arc::clone(&waiting),
    };
    (outbox, Inbox { receiver, waiting })
}

impl Inbox {
    pub async fn recv(&mut self) -> Option<Incoming> {
        let (incoming, weight) = self.receiver.recv().await?;
        self.waiting.fetch_sub(weight, Ordering::Relaxed);
        Some(incoming)
    }
}

impl Outbox {
    /// Refuses what is more than an honest guest would send.
    pub fn put(&self, incoming: Incoming, length: usize) -> Result<(), String> {
        let names = match &incoming {
            Incoming::Message(FromGuest::Listing { entries, .. }) => {
                let names = entries.iter().all(|entry| is_name(&entry.name));
                if entries.len() > LISTING_PART || !names {
                    return Err("the guest sent a listing that cannot be".into());
                }
                entries.len()
            }
            _ => 0,
        };
        let weight = length + (names + 1) * EACH;
        if self.waiting.fetch_add(weight, Ordering::Relaxed) + weight > MOST {
            return Err("the guest sent more than anyone takes".into());
        }
        // The receiver may have gone away just now.
        let _ = self.sender.send((incoming, weight));
        Ok(())
    }
}
