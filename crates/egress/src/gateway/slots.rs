//! Limits the number of connections. Code in the sandbox decides how many it opens, and the owner needs
//! descriptors for itself: to watch, to record, to kill.

use std::sync::{Arc, LazyLock};

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use super::{Gateway, ListenerKind, lock};
use crate::decision::{Protocol, Reason};

/// Connections of all gateways of this process. Each takes two descriptors, so a quarter of all
/// descriptors stays free.
static CONNECTIONS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(descriptors() / 8 * 3)));

/// Pipes for `splice`, with two descriptors and up to 1 MiB each.
static PIPES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((descriptors() / 32).min(128)));

fn descriptors() -> usize {
    const MOST: u64 = 1 << 20;
    let own = getrlimit(Resource::Nofile).current.unwrap_or(MOST);
    usize::try_from(own.min(MOST)).unwrap_or_default()
}

/// Held by a connection while it is open.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
    end: watch::Receiver<bool>,
}

impl ConnectionSlot {
    /// Returns when all connections have to end.
    pub(super) async fn ended(&mut self) {
        // An error means that the gateway is gone, which is the same.
        let _ = self.end.wait_for(|ended| *ended).await;
    }
}

/// A permit for a pipe, if there is one left.
pub(super) fn pipe() -> Option<SemaphorePermit<'static>> {
    PIPES.try_acquire().ok()
}

impl Gateway {
    /// A slot for one more connection. If there is none, that is recorded.
    pub(super) fn slot(&self, kind: ListenerKind) -> Option<ConnectionSlot> {
        let slot = self.free_slot();
        if slot.is_none() {
            let protocol = match kind {
                ListenerKind::Proxy => Protocol::Http,
                ListenerKind::Transparent => Protocol::Tcp,
                ListenerKind::Dns => Protocol::Dns,
            };
            let reason = Reason::Limit("too many connections are open");
            self.record_malformed("one more connection", protocol, reason);
        }
        slot
    }

    fn free_slot(&self) -> Option<ConnectionSlot> {
        Some(ConnectionSlot {
            _own: self.shared.slots.clone().try_acquire_owned().ok()?,
            _shared: CONNECTIONS.clone().try_acquire_owned().ok()?,
            end: lock(&self.shared.era).subscribe(),
        })
    }

    /// Ends all current connections. The returned future is ready when all of them are closed and
    /// recorded.
    pub fn end_connections(&self) -> impl Future<Output = ()> + Send + use<> {
        let era = std::mem::take(&mut *lock(&self.shared.era));
        era.send_replace(true);
        async move { era.closed().await }
    }
}
