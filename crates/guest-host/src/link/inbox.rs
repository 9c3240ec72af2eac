//! What was received for one request and not processed yet. Bounded, because the guest is not trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brig_wire::{FromGuest, LISTING_PART};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// What is received for one request.
#[derive(Debug)]
pub enum Incoming {
    Message(FromGuest),
    Data {
        channel: u32,
        bytes: Bytes,
    },
    End,
    /// A listener of the guest accepted a connection.
    Accepted {
        listener: u32,
        address: ([u8; 4], u16),
        channel: u32,
        inbox: Inbox,
    },
    /// Sent by this side: everything before it was processed.
    Barrier(oneshot::Sender<()>),
}

impl Incoming {
    /// For error messages. Without the contents, which are not trusted.
    pub fn name(&self) -> &'static str {
        match self {
            Incoming::Data { .. } => "data",
            Incoming::End => "end of data",
            Incoming::Barrier(_) => "nothing",
            Incoming::Message(FromGuest::Ready { .. }) => "ready",
            Incoming::Message(FromGuest::SetupFailed { .. }) => "setup failed",
            Incoming::Message(FromGuest::SpawnFailed { .. }) => "spawn failed",
            Incoming::Message(FromGuest::Exited(_)) => "exited",
            Incoming::Message(FromGuest::Done { .. }) => "done",
            Incoming::Message(FromGuest::Failed { .. }) => "failed",
            Incoming::Message(FromGuest::Listing { .. }) => "listing",
            Incoming::Message(FromGuest::Checked { .. }) => "checked",
            Incoming::Message(FromGuest::Found { .. }) => "found",
            Incoming::Message(FromGuest::Usage(_)) => "usage",
            Incoming::Accepted { .. } | Incoming::Message(FromGuest::Accepted { .. }) => {
                "connection"
            }
            Incoming::Message(FromGuest::Datagram { .. }) => "datagram",
            Incoming::Message(FromGuest::Exec(_)) => "command",
            Incoming::Message(FromGuest::Unreachable(_)) => "address",
        }
    }
}

/// Bytes that may wait: more than the longest listing and all credit.
const MOST: usize = 64 * 1024 * 1024;
/// The cost of an entry in addition to its bytes.
const OVERHEAD: usize = 128;
/// The longest file name.
const LONGEST_NAME: usize = 255;

/// Whether this is a valid file name. Callers may append it to a path.
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
pub(super) struct Outbox {
    sender: mpsc::UnboundedSender<(Incoming, usize)>,
    waiting: Arc<AtomicUsize>,
}

pub(super) fn pair() -> (Outbox, Inbox) {
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
    /// Fails if it is more than a correct guest would send.
    pub(super) fn put(&self, incoming: Incoming, length: usize) -> Result<(), String> {
        let names = match &incoming {
            Incoming::Message(FromGuest::Listing { entries, .. }) => {
                let names = entries.iter().all(|entry| is_name(&entry.name));
                if entries.len() > LISTING_PART || !names {
                    return Err("the guest sent an invalid directory listing".into());
                }
                entries.len()
            }
            _ => 0,
        };
        let weight = length + (names + 1) * OVERHEAD;
        if self.waiting.fetch_add(weight, Ordering::Relaxed) + weight > MOST {
            return Err("the guest sent more data than was requested".into());
        }
        // The receiver may have gone away just now.
        let _ = self.sender.send((incoming, weight));
        Ok(())
    }
}
