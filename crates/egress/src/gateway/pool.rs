//! The addresses that DNS hands out instead of real ones, and the names behind them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_hosts::Name;

/// How long a name keeps its address after its last use, even if the pool is full.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// Two address ranges. The n-th address of both stands for the n-th name. A name in use keeps its
/// address; when the pool is full, the least recently used name is replaced.
#[derive(Clone, Debug)]
pub struct Pool {
    ipv4: Ipv4Addr,
    ipv6: Option<Ipv6Addr>,
    most: usize,
    kept: Duration,
    numbers: HashMap<Name, usize>,
    /// By number, starting with 1.
    names: Vec<PoolName>,
}

#[derive(Clone, Debug)]
struct PoolName {
    name: Name,
    used: Instant,
    /// Held by open connections.
    open: Arc<()>,
}

/// Keeps an address for its name.
pub(super) type InUse = Arc<()>;

/// 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so no program expects a host there.
impl Default for Pool {
    fn default() -> Self {
        Self::new(Ipv4Addr::new(198, 18, 0, 0), None)
    }
}

impl Pool {
    /// Addresses after these ones; at most 131,070. Without IPv6, names have only IPv4 addresses.
    pub fn new(ipv4: Ipv4Addr, ipv6: Option<Ipv6Addr>) -> Self {
        Self {
            ipv4,
            ipv6,
            most: 131_070,
            kept: KEPT,
            numbers: HashMap::new(),
            names: Vec::new(),
        }
    }

    pub(super) fn at_most(mut self, names: usize) -> Self {
        self.most = self.most.min(names).max(1);
        self
    }

    /// The addresses of a name. `None` if all are in use.
    pub(super) fn hand_out(&mut self, name: &Name) -> Option<(Ipv4Addr, Option<Ipv6Addr>)> {
        let at = match self.numbers.get(name) {
            Some(at) => *at,
            None => self.remember(name)?,
        };
        self.names.get_mut(at)?.used = Instant::now();
        let number = u32::try_from(at + 1).ok()?;
        Some((
            Ipv4Addr::from(u32::from(self.ipv4).wrapping_add(number)),
            (self.ipv6).map(|first| Ipv6Addr::from(u128::from(first).wrapping_add(number.into()))),
        ))
    }

    fn remember(&mut self, name: &Name) -> Option<usize> {
        let entry = PoolName {
            name: name.clone(),
            used: Instant::now(),
            open: InUse::default(),
        };
        let at = match self.names.len() {
            used if used < self.most => {
                self.names.push(entry);
                used
            }
            _ => {
                let at = self.oldest()?;
                let old = std::mem::replace(&mut self.names[at], entry);
                self.numbers.remove(&old.name);
                at
            }
        };
        self.numbers.insert(name.clone(), at);
        Some(at)
    }

    /// The least recently used name without an open connection.
    fn oldest(&self) -> Option<usize> {
        let all = self.names.iter().enumerate();
        let unused = all.filter(|(_, entry)| {
            Arc::strong_count(&entry.open) == 1 && entry.used.elapsed() >= self.kept
        });
        unused.min_by_key(|(_, entry)| entry.used).map(|(at, _)| at)
    }

    /// The name of an address. The address keeps its name at least until the mark is dropped.
    pub(super) fn name(&mut self, dialled: SocketAddr) -> Option<(Name, InUse)> {
        let number = match (dialled.ip(), self.ipv6) {
            (IpAddr::V4(address), _) => u32::from(address).checked_sub(self.ipv4.into())?,
            (IpAddr::V6(address), Some(first)) => {
                let number = u128::from(address).checked_sub(first.into())?;
                u32::try_from(number).ok()?
            }
            (IpAddr::V6(_), None) => return None,
        };
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let entry = self.names.get_mut(at)?;
        entry.used = Instant::now();
        Some((entry.name.clone(), entry.open.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brig_hosts::Host;

    fn name(text: &str) -> Name {
        match Host::parse(text).expect(text) {
            Host::Name(name) => name,
            Host::Address(_) => panic!("{text} is an address"),
        }
    }

    #[test]
    fn an_address_stands_for_its_name_while_that_is_in_use() {
        let v6 = "fd00:b::".parse().expect("an address");
        let mut pool = Pool::new(Ipv4Addr::new(198, 18, 0, 0), Some(v6)).at_most(2);
        let (a, a6) = pool.hand_out(&name("a.com")).expect("room");
        let (b, _) = pool.hand_out(&name("b.com")).expect("room");
        let again = pool.hand_out(&name("a.com")).expect("the same");
        assert_eq!(again.0, a, "the same again");
        assert_ne!(a, b);
        let behind = |pool: &mut Pool, ip: IpAddr| pool.name(SocketAddr::new(ip, 443));
        let named = |pool: &mut Pool, ip: IpAddr| behind(pool, ip).map(|(name, _)| name);
        assert_eq!(named(&mut pool, a.into()), Some(name("a.com")));
        let a6 = a6.expect("IPv6");
        assert_eq!(named(&mut pool, a6.into()), Some(name("a.com")));
        assert_eq!(pool.hand_out(&name("c.com")), None, "both were just used");
        // Long unused, but for a connection that is open.
        pool.kept = Duration::ZERO;
        let open = behind(&mut pool, b.into()).expect("a name").1;
        let (c, _) = pool.hand_out(&name("c.com")).expect("a.com makes room");
        assert_eq!(c, a);
        assert_eq!(named(&mut pool, a.into()), Some(name("c.com")));
        let (d, _) = pool.hand_out(&name("d.com")).expect("c.com makes room");
        assert_eq!((d, named(&mut pool, b.into())), (a, Some(name("b.com"))));
        drop(open);
        pool.hand_out(&name("d.com")).expect("used last");
        let (e, _) = pool.hand_out(&name("e.com")).expect("b.com makes room");
        assert_eq!(e, b);
        assert_eq!(pool.numbers.len(), 2);
        for none in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(198, 18, 0, 0)] {
            assert_eq!(named(&mut pool, none.into()), None);
        }
    }
}
