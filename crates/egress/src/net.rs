//! What the gateway needs from the host: names looked up, addresses dialled.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use brig_hosts::Name;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Looks names up. Asked only for names that were allowed.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>>;
}

/// Opens connections. Asked only for addresses that were checked.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// Lookups at a time. Each holds a thread, also when nobody waits for it any more, and the owner
/// has other uses for threads.
const LOOKUPS: usize = 32;

/// The resolver and the network of this machine.
#[derive(Clone, Debug)]
pub struct System {
    lookups: Arc<Semaphore>,
}

impl Default for System {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }
}

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        let room = self.lookups.clone().acquire_owned().await;
        let name = name.to_string();
        let look_up = move || {
            let _room = room;
            let found = (name.as_str(), 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        };
        tokio::task::spawn_blocking(look_up).await?
    }
}

#[async_trait]
impl Dial for System {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}
