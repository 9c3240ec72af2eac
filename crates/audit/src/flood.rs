//! A program can ask for the same thing a million times. The first is always kept, and the number
//! of those that are not is exact.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Event, Record};

/// Kept in a row of things that are alike.
const BURST: u32 = 20;
/// Kept in a row of things of one kind.
const KIND_BURST: u32 = 500;
/// How often one more of a kind, or of things alike, is kept after that.
const REFILL: Duration = Duration::from_secs(1);
/// Things that are told apart. What comes after is counted together.
const DISTINCT: usize = 1000;

/// What was seen of the executions that are under way.
#[derive(Debug, Default)]
pub(crate) struct Floods(Mutex<HashMap<Owner, Flood>>);

/// Session and execution.
type Owner = (String, Option<String>);

impl Floods {
    /// Whether a record is to be kept, and what has to be kept before it.
    pub fn admit(&self, record: &Record) -> Option<Vec<Record>> {
        if subject(&record.event).is_none() {
            return Some(Vec::new());
        }
        let mut floods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let flood = floods.entry(owner(record)).or_default();
        let before = flood.admit(&record.event, Instant::now())?;
        Some(
            before
                .into_iter()
                .map(|event| beside(record, event))
                .collect(),
        )
    }

    /// What is still to be said about an execution or a session that this record ends.
    pub fn ended(&self, record: &Record) -> Vec<Record> {
        if !matches!(
            record.event,
            Event::ExecutionFinished { .. }
                | Event::ExecutionFailed { .. }
                | Event::Receipt(_)
                | Event::SessionDestroyed
        ) {
            return Vec::new();
        }
        let mut floods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if floods.is_empty() {
            return Vec::new();
        }
        let flood = floods.remove(&owner(record)).unwrap_or_default();
        let rest = flood.finish().into_iter();
        rest.map(|event| beside(record, event)).collect()
    }
}

fn owner(record: &Record) -> Owner {
    (record.session.clone(), record.execution.clone())
}

/// Another event of the same execution.
fn beside(record: &Record, event: Event) -> Record {
    Record {
        event,
        ..record.clone()
    }
}

/// What was seen of one execution.
#[derive(Debug, Default)]
struct Flood {
    kinds: HashMap<Kind, Bucket>,
    alike: HashMap<(Kind, String), Bucket>,
}

/// The event, and whether it was allowed.
type Kind = (&'static str, bool);

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: Instant,
    suppressed: u64,
}

impl Bucket {
    fn new(left: u32, now: Instant) -> Self {
        Self {
            left,
            filled: now,
            suppressed: 0,
        }
    }

    fn take(&mut self, burst: u32, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs();
        let more = u32::try_from(passed / REFILL.as_secs()).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(burst);
            self.filled = now;
        }
        let free = self.left > 0;
        self.left -= u32::from(free);
        free
    }
}

/// What can come in floods: its kind, and what makes two of them alike.
fn subject(event: &Event) -> Option<(Kind, String)> {
    Some(match event {
        Event::EgressDecided(egress) => (
            ("egress_decided", egress.allowed),
            format!("{}:{}", egress.host, egress.port),
        ),
        Event::EgressClosed(egress) => (
            ("egress_closed", egress.allowed),
            format!("{}:{}", egress.host, egress.port),
        ),
        Event::CommandAttempted(command) => (
            ("command_attempted", command.allowed),
            command.program.clone(),
        ),
        Event::ToolCalled(tool) => (("tool_called", tool.allowed), tool.tool.clone()),
        _ => return None,
    })
}

impl Flood {
    /// Whether an event is to be kept, and what has to be said before it.
    fn admit(&mut self, event: &Event, now: Instant) -> Option<Vec<Event>> {
        let Some((kind, subject)) = subject(event) else {
            return Some(Vec::new());
        };
        let first = !self.kinds.contains_key(&kind);
        let of_kind = self
            .kinds
            .entry(kind)
            .or_insert_with(|| Bucket::new(KIND_BURST, now));
        let key = (kind, subject);
        if !self.alike.contains_key(&key) {
            if self.alike.len() >= DISTINCT && !first {
                of_kind.suppressed += 1;
                return None;
            }
            self.alike.insert(key.clone(), Bucket::new(BURST, now));
        }
        let alike = self.alike.get_mut(&key)?;
        // One that is new is kept whatever its kind has used up.
        let new = alike.left == BURST && alike.suppressed == 0 && alike.filled == now;
        if !(alike.take(BURST, now) && (of_kind.take(KIND_BURST, now) || new)) {
            alike.suppressed += 1;
            return None;
        }
        let count = std::mem::take(&mut alike.suppressed);
        Some(report(kind, Some(key.1), count).into_iter().collect())
    }

    /// What has not been said yet about what was left out.
    fn finish(self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        let mut alike: Vec<_> = self.alike.into_iter().collect();
        alike.sort_by(|a, b| a.0.cmp(&b.0));
        for ((kind, subject), bucket) in alike {
            all.extend(report(kind, Some(subject), bucket.suppressed));
        }
        let mut kinds: Vec<_> = self.kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, _)| *kind);
        for (kind, bucket) in kinds {
            all.extend(report(kind, None, bucket.suppressed));
        }
        all
    }
}

fn report(kind: Kind, subject: Option<String>, count: u64) -> Option<Event> {
    (count > 0).then(|| Event::Suppressed {
        of: kind.0.into(),
        allowed: kind.1,
        subject,
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Egress;

    fn egress(host: &str, allowed: bool) -> Event {
        Event::EgressDecided(Egress {
            allowed,
            code: "egress.host".into(),
            rule: None,
            layer: None,
            carried: None,
            protocol: "https".into(),
            host: host.into(),
            port: 443,
        })
    }

    /// How many were kept, and how many were said to be left out.
    fn run(events: &[(Event, Duration)]) -> (u64, u64, Vec<usize>) {
        let start = Instant::now();
        let mut flood = Flood::default();
        let (mut kept, mut said, mut places) = (0, 0, Vec::new());
        let count = |events: &[Event]| -> u64 {
            events
                .iter()
                .map(|event| match event {
                    Event::Suppressed { count, .. } => *count,
                    _ => 0,
                })
                .sum()
        };
        for (place, (event, at)) in events.iter().enumerate() {
            if let Some(before) = flood.admit(event, start + *at) {
                kept += 1;
                said += count(&before);
                places.push(place);
            }
        }
        said += count(&flood.finish());
        (kept, said, places)
    }

    #[test]
    fn a_flood_of_one_thing_is_counted_exactly_and_its_first_is_kept() {
        let events: Vec<_> = (0..100_000_u64)
            .map(|n| (egress("a.example", false), Duration::from_micros(n * 50)))
            .collect();
        let (kept, said, places) = run(&events);
        assert_eq!(kept + said, 100_000);
        assert_eq!(places[0], 0);
        assert!(kept < 50, "{kept}");
    }

    #[test]
    fn a_flood_of_different_things_is_counted_exactly_and_bounded() {
        let mut events: Vec<_> = (0..50_000)
            .map(|n| (egress(&format!("{n}.example"), false), Duration::ZERO))
            .collect();
        events.push((egress("first-allowed.example", true), Duration::ZERO));
        let (kept, said, places) = run(&events);
        assert_eq!(kept + said, 50_001);
        assert!(kept <= DISTINCT as u64 + 1, "{kept}");
        assert_eq!(places[0], 0);
        assert_eq!(
            *places.last().expect("some"),
            50_000,
            "the first of its kind"
        );
    }

    #[test]
    fn what_is_rare_is_never_left_out() {
        let events: Vec<_> = (0..1000_u64)
            .map(|n| (egress("a.example", true), Duration::from_secs(n * 2)))
            .collect();
        let (kept, said, _) = run(&events);
        assert_eq!((kept, said), (1000, 0));
        let (kept, said, _) = run(&vec![(Event::SessionDestroyed, Duration::ZERO); 10_000]);
        assert_eq!((kept, said), (10_000, 0));
    }
}
