//! The addresses that DNS hands out in place of real ones, and the names behind them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use brig_hosts::Name;

/// Two ranges, of which the same number stands for the same name. The oldest name makes room.
#[derive(Clone, Debug)]
pub struct Pool {
    ipv4: Ipv4Addr,
    ipv6: Option<Ipv6Addr>,
    most: u32,
    numbers: HashMap<Name, u32>,
    names: HashMap<u32, Name>,
    order: VecDeque<u32>,
}

/// 198.18.0.0/15: for benchmarks between machines, so no program expects to find anything there.
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
            numbers: HashMap::new(),
            names: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn at_most(mut self, names: usize) -> Self {
        self.most = self
            .most
            .min(u32::try_from(names).unwrap_or(u32::MAX))
            .max(1);
        self
    }

    /// The addresses that stand for the name.
    pub(super) fn hand_out(&mut self, name: &Name) -> (Ipv4Addr, Option<Ipv6Addr>) {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.remember(name),
        };
        (
            Ipv4Addr::from(u32::from(self.ipv4).wrapping_add(number)),
            (self.ipv6).map(|first| Ipv6Addr::from(u128::from(first).wrapping_add(number.into()))),
        )
    }

    fn remember(&mut self, name: &Name) -> u32 {
        let used = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        let number = match self.order.pop_front() {
            Some(oldest) if used >= self.most => oldest,
            Some(oldest) => {
                self.order.push_front(oldest);
                used + 1
            }
            None => 1,
        };
        if let Some(old) = self.names.insert(number, name.clone()) {
            self.numbers.remove(&old);
        }
        self.numbers.insert(name.clone(), number);
        self.order.push_back(number);
        number
    }

    /// The name that the address stands for.
    pub(super) fn name(&self, dialled: SocketAddr) -> Option<Name> {
        let number = match (dialled.ip(), self.ipv6) {
            (IpAddr::V4(address), _) => u32::from(address).checked_sub(self.ipv4.into())?,
            (IpAddr::V6(address), Some(first)) => {
                let number = u128::from(address).checked_sub(first.into())?;
                u32::try_from(number).ok()?
            }
            (IpAddr::V6(_), None) => return None,
        };
        self.names.get(&number).cloned()
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
    fn an_address_stands_for_its_name_until_the_pool_is_full() {
        let v6 = "fd00:b::".parse().expect("an address");
        let mut pool = Pool::new(Ipv4Addr::new(198, 18, 0, 0), Some(v6)).at_most(2);
        let (a, a6) = pool.hand_out(&name("a.com"));
        let (b, _) = pool.hand_out(&name("b.com"));
        assert_eq!(pool.hand_out(&name("a.com")).0, a, "the same again");
        assert_ne!(a, b);
        let behind = |pool: &Pool, ip: IpAddr| pool.name(SocketAddr::new(ip, 443));
        assert_eq!(behind(&pool, a.into()), Some(name("a.com")));
        assert_eq!(behind(&pool, a6.expect("IPv6").into()), Some(name("a.com")));
        let (c, _) = pool.hand_out(&name("c.com"));
        assert_eq!(c, a, "the oldest makes room");
        assert_eq!(behind(&pool, a.into()), Some(name("c.com")));
        assert_eq!(behind(&pool, b.into()), Some(name("b.com")));
        assert_eq!(pool.numbers.len(), 2);
        assert_eq!(behind(&pool, Ipv4Addr::LOCALHOST.into()), None);
    }
}
