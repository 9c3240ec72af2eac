//! Limits how many denied tool calls are recorded: a program can make millions. The first call is always
//! recorded, and the number of omitted ones is exact. Calls that were allowed are all recorded: each did something
//! outside, with arguments of its own, and the policy limits their number. Network and command attempts are summed
//! by the sandbox.

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
/// The most different subjects of one kind. Further ones are counted together.
const DISTINCT: usize = 1000;

/// Counters of the running executions.
#[derive(Debug, Default)]
pub(crate) struct Floods(Mutex<HashMap<ExecutionKey, Flood>>);

/// Session and execution.
type ExecutionKey = (String, Option<String>);

impl Floods {
    /// Whether a record is to be kept, and what has to be kept before it.
    pub(crate) fn admit(&self, record: &Record) -> Option<Vec<Record>> {
        if subject(&record.event).is_none() {
            return Some(Vec::new());
        }
        let mut floods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let flood = floods.entry(execution_key(record)).or_default();
        let before = flood.admit(&record.event, Instant::now())?;
        Some(
            before
                .into_iter()
                .map(|event| beside(record, event))
                .collect(),
        )
    }

    /// Totals that are due when this record ends an execution or a session.
    pub(crate) fn ended(&self, record: &Record) -> Vec<Record> {
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
        let flood = floods.remove(&execution_key(record)).unwrap_or_default();
        let rest = flood.finish().into_iter();
        rest.map(|event| beside(record, event)).collect()
    }
}

fn execution_key(record: &Record) -> ExecutionKey {
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
    alike: HashMap<(Kind, Subject), Bucket>,
}

/// The event, and whether it was allowed.
type Kind = (&'static str, bool);

/// Tool, code, rule and success.
type Subject = (String, String, Option<String>, Option<bool>);

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: Instant,
    suppressed: u64,
    /// Of a kind: how many subjects are distinguished.
    distinct: usize,
}

impl Bucket {
    fn new(left: u32, now: Instant) -> Self {
        Self {
            left,
            filled: now,
            suppressed: 0,
            distinct: 0,
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
fn subject(event: &Event) -> Option<(Kind, Subject)> {
    let Event::ToolCalled(tool) = event else {
        return None;
    };
    if tool.allowed {
        return None;
    }
    let (name, code, rule) = (tool.tool.clone(), tool.code.clone(), tool.rule.clone());
    Some((
        ("tool_called", tool.allowed),
        (name, code, rule, tool.success),
    ))
}

impl Flood {
    /// Whether an event is recorded, and the totals to record before it.
    fn admit(&mut self, event: &Event, now: Instant) -> Option<Vec<Event>> {
        let Some((kind, subject)) = subject(event) else {
            return Some(Vec::new());
        };
        let of_kind = self
            .kinds
            .entry(kind)
            .or_insert_with(|| Bucket::new(KIND_BURST, now));
        let key = (kind, subject);
        if !self.alike.contains_key(&key) {
            if of_kind.distinct >= DISTINCT {
                of_kind.suppressed += 1;
                return None;
            }
            of_kind.distinct += 1;
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
        Some(report(kind, Some(key.1.0), count).into_iter().collect())
    }

    /// Totals of omitted events that are not recorded yet.
    fn finish(self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        let mut alike: Vec<_> = self.alike.into_iter().collect();
        alike.sort_by(|a, b| a.0.cmp(&b.0));
        for ((kind, subject), bucket) in alike {
            all.extend(report(kind, Some(subject.0), bucket.suppressed));
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
    use crate::Tool;

    fn call(tool: &str, allowed: bool) -> Event {
        Event::ToolCalled(Tool {
            allowed,
            code: "tool".into(),
            rule: None,
            tool: tool.into(),
            arguments_digest: None,
            success: None,
            ..Tool::default()
        })
    }

    /// How many were recorded, and how many were reported as omitted.
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
            .map(|n| (call("a.example", false), Duration::from_micros(n * 50)))
            .collect();
        let (kept, said, places) = run(&events);
        assert_eq!(kept + said, 100_000);
        assert_eq!(places[0], 0);
        assert!(kept < 50, "{kept}");
    }

    #[test]
    fn a_flood_of_different_things_is_counted_exactly_and_bounded() {
        let mut events: Vec<_> = (0..50_000)
            .map(|n| (call(&format!("{n}.example"), false), Duration::ZERO))
            .collect();
        events.push((call("allowed.example", true), Duration::ZERO));
        let (kept, said, places) = run(&events);
        assert_eq!(kept + said, 50_001);
        assert!(kept <= DISTINCT as u64 + 1, "{kept}");
        assert_eq!(places[0], 0);
        assert_eq!(places[places.len() - 1], 50_000);
    }

    /// No number of harmless calls hides the one that matters.
    #[test]
    fn no_call_that_was_allowed_is_left_out() {
        let events = vec![(call("a.example", true), Duration::ZERO); 10_000];
        assert_eq!(run(&events).0, 10_000);
        let denied = vec![(call("a.example", false), Duration::ZERO); 10_000];
        assert!(run(&denied).0 < 50, "control");
    }

    #[test]
    fn calls_that_end_differently_do_not_hide_each_other() {
        let mut events = vec![(call("a.example", false), Duration::ZERO); 100];
        for (rule, success) in [(None, Some(true)), (Some("r"), None)] {
            let Event::ToolCalled(tool) = call("a.example", false) else {
                unreachable!("a call");
            };
            let other = Event::ToolCalled(Tool {
                rule: rule.map(str::to_owned),
                success,
                ..tool
            });
            events.push((other, Duration::ZERO));
        }
        let (kept, said, places) = run(&events);
        assert_eq!(kept + said, 102);
        assert!(said > 50, "the control: these are too many");
        assert_eq!(places[places.len() - 2..], [100, 101]);
    }

    #[test]
    fn what_is_rare_is_never_left_out() {
        let events: Vec<_> = (0..1000_u64)
            .map(|n| (call("a.example", false), Duration::from_secs(n * 2)))
            .collect();
        let (kept, said, _) = run(&events);
        assert_eq!((kept, said), (1000, 0));
        let (kept, said, _) = run(&vec![(Event::SessionDestroyed, Duration::ZERO); 10_000]);
        assert_eq!((kept, said), (10_000, 0));
    }
}
