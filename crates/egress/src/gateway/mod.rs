//! Serves the connections of one sandbox.

mod dns;
mod first;
mod forward;
mod http;
mod meter;
mod open;
mod place;
mod pool;
mod proxy;
mod refuse;
mod relay;
mod serve;
mod share;
mod socks;
mod splice;
mod stream;
mod transparent;
mod tunnel;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use crate::limits::Limits;
use crate::net::{Dial, Resolve, System};
use crate::record::Record;
use crate::rules::Rules;
use place::Place;

pub use first::{FirstBytes, first_bytes, tls_name};
pub use pool::Pool;
pub use socks::request as socks_request;

/// What is spoken on a connection from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// HTTP proxy or SOCKS5, told apart by the first byte.
    Proxy,
    /// Anything, to an address that the client dialled.
    Transparent,
    /// DNS over TCP.
    Dns,
}

/// A byte stream from inside the sandbox.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// The only way out of a sandbox. Clones are the same gateway.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Rules,
    resolve: Arc<dyn Resolve>,
    dial: Arc<dyn Dial>,
    record: Arc<dyn Record>,
    limits: Limits,
    pool: Mutex<Pool>,
    slots: Arc<Semaphore>,
    /// Told when all connections of the moment are to end.
    era: Mutex<watch::Sender<bool>>,
    next: AtomicU64,
    execution: Mutex<Option<Arc<str>>>,
}

/// Makes a [`Gateway`]. There is no default for where decisions are recorded.
pub struct Builder {
    rules: Rules,
    resolve: Arc<dyn Resolve>,
    dial: Arc<dyn Dial>,
    record: Arc<dyn Record>,
    limits: Limits,
    pool: Option<Pool>,
}

impl Builder {
    pub fn resolve(mut self, resolve: impl Resolve) -> Self {
        self.resolve = Arc::new(resolve);
        self
    }

    pub fn dial(mut self, dial: impl Dial) -> Self {
        self.dial = Arc::new(dial);
        self
    }

    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The addresses that DNS hands out, routed to the transparent listener.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    pub fn build(self) -> Gateway {
        let names = self.limits.names;
        Gateway {
            shared: Arc::new(Shared {
                slots: Arc::new(Semaphore::new(self.limits.connections)),
                pool: Mutex::new(self.pool.unwrap_or_default().at_most(names)),
                era: Mutex::default(),
                rules: self.rules,
                resolve: self.resolve,
                dial: self.dial,
                record: self.record,
                limits: self.limits,
                next: AtomicU64::new(1),
                execution: Mutex::new(None),
            }),
        }
    }
}

impl Gateway {
    /// With the resolver and the network of this machine.
    pub fn builder(rules: impl Into<Rules>, record: impl Record) -> Builder {
        Builder {
            rules: rules.into(),
            resolve: Arc::new(System::default()),
            dial: Arc::new(System::default()),
            record: Arc::new(record),
            limits: Limits::default(),
            pool: None,
        }
    }

    /// The rules in force, to read and to change.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// What runs inside from now on, for the records.
    pub fn set_execution(&self, execution: Option<&str>) {
        *lock(&self.shared.execution) = execution.map(Arc::from);
    }

    /// Serves one stream to its end. `dialled` is the address that the client connected to, for
    /// [`Entry::Transparent`].
    pub async fn connection<S: Stream>(
        &self,
        stream: S,
        entry: Entry,
        dialled: Option<SocketAddr>,
    ) {
        if let Some(place) = self.place(entry) {
            self.serve_stream(stream, entry, dialled, place).await;
        }
    }

    async fn serve_stream<S: Stream>(
        &self,
        stream: S,
        entry: Entry,
        dialled: Option<SocketAddr>,
        mut place: Place,
    ) {
        self.bound_stream(&stream);
        let served = async {
            match entry {
                Entry::Proxy => proxy::serve(self, stream).await,
                Entry::Dns => dns::serve(self, stream).await,
                Entry::Transparent => match dialled {
                    Some(dialled) => transparent::serve(self, stream, dialled).await,
                    None => drop(stream),
                },
            }
        };
        // Whatever a connection is at then, dropping it ends it.
        tokio::select! {
            _ = tokio::time::timeout(self.shared.limits.lifetime, served) => {}
            () = place.ended() => {}
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Nothing here leaves what it guards half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
