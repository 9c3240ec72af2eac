//! Room for one more connection. What runs inside decides how many there are, and the owner needs
//! descriptors of its own: to watch, to record, to end what runs.

use std::sync::{Arc, LazyLock};

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use super::{Entry, Gateway, lock};
use crate::decision::{Protocol, Reason};

/// Connections of all gateways of this process. Each takes two descriptors; a quarter of all is
/// left to others.
static CONNECTIONS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(descriptors() / 8 * 3)));

/// Directions that have a pipe, with two descriptors and up to 1 MiB each.
static PIPES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((descriptors() / 32).min(128)));

fn descriptors() -> usize {
    const MOST: u64 = 1 << 20;
    let own = getrlimit(Resource::Nofile).current.unwrap_or(MOST);
    usize::try_from(own.min(MOST)).unwrap_or_default()
}

/// Held by a connection for as long as it is open.
#[derive(Debug)]
pub(super) struct Place {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
    end: watch::Receiver<bool>,
}

impl Place {
    /// Returns once all connections are to end.
    pub async fn ended(&mut self) {
        // Nobody left who could say so is the same.
        let _ = self.end.wait_for(|ended| *ended).await;
    }
}

/// Room for a pipe, if there is any.
pub(super) fn pipe() -> Option<SemaphorePermit<'static>> {
    PIPES.try_acquire().ok()
}

impl Gateway {
    /// Room for one more connection. That there is none is on record.
    pub(super) fn place(&self, entry: Entry) -> Option<Place> {
        let place = self.free_place();
        if place.is_none() {
            let protocol = match entry {
                Entry::Proxy => Protocol::Http,
                Entry::Transparent => Protocol::Tcp,
                Entry::Dns => Protocol::Dns,
            };
            let reason = Reason::Limit("too many connections are open");
            self.malformed("one more connection", protocol, reason);
        }
        place
    }

    fn free_place(&self) -> Option<Place> {
        Some(Place {
            _own: self.shared.slots.clone().try_acquire_owned().ok()?,
            _shared: CONNECTIONS.clone().try_acquire_owned().ok()?,
            end: lock(&self.shared.era).subscribe(),
        })
    }

    /// Ends all connections of the moment. What is returned is ready once all of them are closed
    /// and their ends told.
    pub fn end_connections(&self) -> impl Future<Output = ()> + Send + use<> {
        let era = std::mem::take(&mut *lock(&self.shared.era));
        era.send_replace(true);
        async move { era.closed().await }
    }
}
