//! What the gateway needs from the host: names looked up, addresses dialled.

use std::fs;
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
            // With its last dot it is the name that was allowed, and not one below a domain that
            // this machine searches.
            let found = (format!("{name}."), 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        };
        tokio::task::spawn_blocking(look_up).await?
    }
}

/// The addresses that the file gives a name. The system's resolver would not find them by a name
/// with a dot at its end.
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
