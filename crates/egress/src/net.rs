//! What the gateway needs from the host: a resolver, and connections.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use brig_hosts::Name;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Resolves names. Called only for allowed names.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of the name, of either family. The gateway checks each of them before it dials. An error or
    /// an empty list ends the request with [`Reason::Unresolved`](crate::Reason::Unresolved).
    async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>>;
}

/// Opens connections. Called only for checked addresses.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// Connects to exactly this address. After an error the gateway tries the next address of the name.
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// Concurrent lookups. Each blocks a thread, even after it was cancelled, and the owner needs threads for other
/// work.
const LOOKUPS: usize = 32;

const HOSTS: &str = "/etc/hosts";

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
            let listed = in_hosts(&fs::read_to_string(HOSTS).unwrap_or_default(), &name);
            if !listed.is_empty() {
                return Ok(listed);
            }
            // With a trailing dot, so that the resolver does not append a search domain of this machine.
            let found = (format!("{name}."), 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        };
        tokio::task::spawn_blocking(look_up).await?
    }
}

/// The addresses of a name in this machine's hosts file. Nothing is sent.
pub fn listed_addresses(name: &Name) -> Vec<IpAddr> {
    in_hosts(
        &fs::read_to_string(HOSTS).unwrap_or_default(),
        name.as_str(),
    )
}

/// The addresses of a name in the hosts file. The system's resolver would not find them for a name with a
/// trailing dot.
fn in_hosts(file: &str, name: &str) -> Vec<IpAddr> {
    let lines = file.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        let listed = words.any(|word| word.trim_end_matches('.').eq_ignore_ascii_case(name));
        listed.then_some(address)
    });
    lines.collect()
}

#[async_trait]
impl Dial for System {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_file_of_hosts() {
        let file = "127.0.0.1 localhost # one.example\n\
            # 192.0.2.9 two.example\n\
            \t192.0.2.1\tone.example. One alias\n\
            fe80::1%lo zone.example\n\
            nonsense one.example\n\
            2001:db8::1 ONE.example\n";
        let found = |name| {
            let found = in_hosts(file, name);
            found.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found("localhost"), ["127.0.0.1"]);
        assert_eq!(found("one.example"), ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(found("alias"), ["192.0.2.1"]);
        for none in ["two.example", "example", "zone.example", "127.0.0.1"] {
            assert!(found(none).is_empty(), "{none}");
        }
    }
}
