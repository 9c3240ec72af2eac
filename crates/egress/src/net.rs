//! What the gateway needs from the host: names looked up, addresses dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use brig_hosts::Name;
use tokio::net::{TcpStream, lookup_host};

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

/// The resolver and the network of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        Ok(lookup_host((name.as_str(), 0))
            .await?
            .map(|address| address.ip())
            .collect())
    }
}

#[async_trait]
impl Dial for System {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}
