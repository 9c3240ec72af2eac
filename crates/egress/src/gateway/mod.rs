//! Serves the connections of one sandbox.

mod accept;
mod dns;
mod dns_socket;
mod first;
mod forward;
mod handshake;
mod http;
mod lookups;
mod meter;
mod open;
mod pool;
mod proxy;
mod redact;
mod refuse;
mod relay;
mod share;
mod slots;
mod socks;
mod splice;
mod stream;
mod tls;
mod transparent;
mod tunnel;
mod unreachable;

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
use lookups::Lookups;
use slots::ConnectionSlot;

pub use accept::Acceptor;
pub use dns_socket::DnsSocket;
pub use first::{FirstBytes, first_bytes};
pub use pool::Pool;
pub use socks::request as socks_request;
pub use tls::{ClientHello, tls_hello};
pub use unreachable::{DROPPED, NO_IPV6, NO_UDP};

/// The protocol of a listener in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// HTTP proxy or SOCKS5, distinguished by the first byte.
    Proxy,
    /// Any protocol, to the address that the client connected to.
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
    lookups: Mutex<Lookups>,
    slots: Arc<Semaphore>,
    /// Notified when all current connections have to end.
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
    /// Replaces the resolver of this machine.
    pub fn resolve(mut self, resolve: impl Resolve) -> Self {
        self.resolve = Arc::new(resolve);
        self
    }

    /// Replaces the network of this machine.
    pub fn dial(mut self, dial: impl Dial) -> Self {
        self.dial = Arc::new(dial);
        self
    }

    /// Replaces the default limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The addresses that DNS hands out, routed to the transparent listener.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Completes the gateway. It serves nothing until it is given listeners or connections.
    pub fn build(self) -> Gateway {
        let names = self.limits.names;
        Gateway {
            shared: Arc::new(Shared {
                slots: Arc::new(Semaphore::new(self.limits.connections)),
                pool: Mutex::new(self.pool.unwrap_or_default().at_most(names)),
                lookups: Mutex::default(),
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

    /// The execution that runs from now on, for the records.
    pub fn set_execution(&self, execution: Option<&str>) {
        *lock(&self.shared.execution) = execution.map(Arc::from);
    }

    /// Serves one stream to its end. `dialled` is the address that the client connected to, for
    /// [`ListenerKind::Transparent`].
    pub async fn connection<S: Stream>(
        &self,
        stream: S,
        kind: ListenerKind,
        dialled: Option<SocketAddr>,
    ) {
        if let Some(slot) = self.slot(kind) {
            self.serve_stream(stream, kind, dialled, slot).await;
        }
    }

    async fn serve_stream<S: Stream>(
        &self,
        stream: S,
        kind: ListenerKind,
        dialled: Option<SocketAddr>,
        mut slot: ConnectionSlot,
    ) {
        self.limit_stream(&stream);
        let served = async {
            match kind {
                ListenerKind::Proxy => proxy::serve(self, stream).await,
                ListenerKind::Dns => dns::serve(self, stream).await,
                ListenerKind::Transparent => match dialled {
                    Some(dialled) => transparent::serve(self, stream, dialled).await,
                    None => drop(stream),
                },
            }
        };
        // Dropping the future closes the connection, whatever it is doing.
        tokio::select! {
            _ = tokio::time::timeout(self.shared.limits.lifetime, served) => {}
            () = slot.ended() => {}
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

/// A panic leaves no state here half changed, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
