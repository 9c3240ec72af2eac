//! Memory that the kernel keeps for every IPv6 address that a packet was sent to, as long as the network namespace
//! exists. No control group counts it, and on loopback no limit holds.

use std::collections::HashSet;
use std::net::Ipv6Addr;

/// What the kernel keeps for one.
const EACH: u64 = 512;
/// How many are remembered. After that, an address may be counted more than once.
const REMEMBERED: usize = 1 << 16;

/// The addresses of packets that were read.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: HashSet<Ipv6Addr>,
    more: u64,
}

impl Neighbours {
    pub(super) fn note(&mut self, address: Ipv6Addr) {
        if self.known.contains(&address) {
            return;
        }
        if self.known.len() < REMEMBERED {
            self.known.insert(address);
        } else {
            self.more += 1;
        }
    }

    /// The memory that they take, if `unread` more packets were sent.
    pub(super) fn bytes(&self, unread: u64, limit: u64) -> u64 {
        let most = self.known.len() as u64 + self.more + unread;
        if most * EACH <= limit {
            return most * EACH;
        }
        // These may be many packets to few addresses. There are not more than the machine has.
        most.min(all_of_the_machine().unwrap_or(u64::MAX)) * EACH
    }
}

/// The number of addresses that the kernel keeps, for all networks. Not known in a container.
fn all_of_the_machine() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/stat/ndisc_cache").ok()?;
    let first = table.lines().nth(1)?.split_whitespace().next()?;
    u64::from_str_radix(first, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_counts_once_and_unread_packets_at_most_once() {
        let mut neighbours = Neighbours::default();
        for number in [1, 2, 1, 2, 1] {
            neighbours.note(Ipv6Addr::from(number));
        }
        assert_eq!(neighbours.bytes(3, u64::MAX), 5 * EACH);
        for number in 0..REMEMBERED as u128 + 10 {
            neighbours.note(Ipv6Addr::from(number));
        }
        let all = REMEMBERED as u64 + 10;
        assert_eq!(neighbours.bytes(0, u64::MAX), all * EACH);
        if let Some(kept) = all_of_the_machine() {
            let most = neighbours.bytes(1 << 40, 0);
            assert!(most < (1 << 40) * EACH, "{kept}");
        }
    }
}
