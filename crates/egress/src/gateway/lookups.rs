//! Programs send several queries for one name, one for each type of address. They are one lookup, and
//! one record.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;

/// Queries within this time may be one lookup.
const TOGETHER: Duration = Duration::from_secs(5);
/// Lookups that are remembered.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Lookups(VecDeque<Lookup>);

#[derive(Debug)]
struct Lookup {
    name: String,
    allowed: bool,
    generation: u64,
    kinds: u8,
    began: Instant,
}

impl Lookups {
    /// Whether the query belongs to a lookup that was recorded.
    pub(super) fn joins(
        &mut self,
        name: &str,
        kind: RecordType,
        allowed: bool,
        generation: u64,
    ) -> bool {
        let bit = match kind {
            RecordType::A => 1,
            RecordType::AAAA => 2,
            RecordType::HTTPS => 4,
            _ => return false,
        };
        let now = Instant::now();
        let alike = |one: &Lookup| {
            one.name == name && (one.allowed, one.generation) == (allowed, generation)
        };
        if let Some(at) = self.0.iter().position(alike) {
            let known = &mut self.0[at];
            if known.kinds & bit == 0 && now.duration_since(known.began) < TOGETHER {
                known.kinds |= bit;
                return true;
            }
            self.0.remove(at);
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Lookup {
            name: name.to_owned(),
            allowed,
            generation,
            kinds: bit,
            began: now,
        });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_address_joins_once() {
        use RecordType::{A, AAAA, HTTPS, TXT};
        let mut lookups = Lookups::default();
        let mut joins = |name: &str, kind| lookups.joins(name, kind, false, 0);
        assert!(!joins("a", A));
        assert!(!joins("b", AAAA), "another name");
        assert!(joins("a", AAAA) && joins("a", HTTPS));
        assert!(!joins("a", AAAA), "once more is another lookup");
        assert!(joins("a", A));
        assert!(!joins("a", TXT) && !joins("a", TXT));
        assert!(!lookups.joins("a", HTTPS, true, 0), "another answer");
        assert!(!lookups.joins("a", HTTPS, false, 1), "other rules");
        for n in 0..1000 {
            assert!(!lookups.joins(&n.to_string(), A, false, 0));
        }
        assert_eq!(lookups.0.len(), MOST);
    }
}
