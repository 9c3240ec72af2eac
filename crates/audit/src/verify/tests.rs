//! Every bit of a log.
//!
//! What comes after a line depends only on what is known before it, so a change is looked at from
//! the line it is in on: by the code that reads whole logs, with what it knew at that line. That
//! makes the many hundred thousand cases a matter of seconds.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use jiff::Timestamp;

use super::*;
use crate::receipt::{Omitted, Output, Totals, Usage, digest};
use crate::{Event, Log, Options, Receipt, Record, Recorder, Verdict};

const RECORDS: u64 = 200;

fn record(n: u64, event: Event) -> Record {
    Record {
        at: Timestamp::from_second(1_700_000_000).expect("time"),
        agent: "agent".into(),
        session: "s".into(),
        execution: Some(format!("e{n}")),
        event,
    }
}

fn receipt(n: u64) -> Record {
    let receipt = Receipt {
        step: n,
        backend: "native".into(),
        policy: Some(digest(b"policy")),
        rule: None,
        decision: Verdict::Allowed,
        code: "policy.none".into(),
        reason: "no policy is loaded".into(),
        approval: None,
        trace: None,
        action: "run".into(),
        code_digest: digest(b"true"),
        started: Timestamp::from_second(1_700_000_000).expect("time"),
        duration_us: n,
        exit_code: Some(0),
        signal: None,
        kill_reason: None,
        usage: Usage::default(),
        stdout: Output::of("\u{17c}\u{f3}\u{142}w \"\u{1f422}\"\n".as_bytes(), 12, &[]),
        stderr: Output::default(),
        egress: Vec::new(),
        commands: Vec::new(),
        tools: Vec::new(),
        omitted: Omitted::default(),
        totals: Totals::default(),
        waived: Vec::new(),
    };
    record(n, Event::Receipt(Box::new(receipt)))
}

/// 200 records of several kinds, in several segments, with a change of keys.
fn make(path: &Path) {
    let options = Options {
        segment_bytes: 16 << 10,
        ..Options::default()
    };
    let log = Log::open(path, options).expect("open");
    for n in 1..RECORDS {
        let one = match n {
            90 => {
                log.rotate_key().expect("rotate");
                continue;
            }
            _ if n % 10 == 0 => receipt(n),
            _ => record(n, Event::SessionDestroyed),
        };
        log.note(one).expect("note");
    }
    log.head().expect("head");
}

/// A good log, and what is known at each of its lines.
struct Good<'a> {
    path: &'a Path,
    snapshot: Snapshot,
    segments: Vec<Vec<u8>>,
    nodes: &'a [u8],
    lines: Vec<Place<'a>>,
}

struct Place<'a> {
    segment: usize,
    start: usize,
    end: usize,
    known: Scan<&'a [u8]>,
}

impl<'a> Good<'a> {
    fn read(path: &'a Path, nodes: &'a [u8]) -> Self {
        let snapshot = Snapshot::open(path).expect("open");
        let segments: Vec<Vec<u8>> = snapshot
            .segments()
            .iter()
            .map(|piece| fs::read(&piece.path).expect("read"))
            .collect();
        let claims = Claims::of(&snapshot, &Expected::default()).expect("head");
        let mut scan = Scan::new(&claims, Some(nodes));
        let mut lines = Vec::new();
        for (segment, bytes) in segments.iter().enumerate() {
            let mut start = 0;
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                lines.push(Place {
                    segment,
                    start,
                    end: start + line.len(),
                    known: scan.clone(),
                });
                scan.line(&mut line[..line.len() - 1].to_vec())
                    .expect("good");
                start += line.len();
            }
        }
        Self {
            path,
            snapshot,
            segments,
            nodes,
            lines,
        }
    }

    /// Verifies from one line on. `bytes` is what the segment holds from there.
    fn go_on(
        &self,
        place: &Place<'a>,
        bytes: &[u8],
        nodes: &[u8],
    ) -> Result<Verified, VerifyError> {
        let expected = Expected::default();
        let claims = Claims::of(&self.snapshot, &expected)?;
        let Place { segment, known, .. } = place;
        let mut scan = known.with(nodes);
        let last = segment + 1 == self.segments.len();
        let path = &self.snapshot.segments()[*segment].path;
        let lines = Lines::in_chunks(bytes, 4096);
        scan.piece(lines, path, bytes.len() as u64, last)?;
        scan.run(&self.snapshot, segment + 1)?;
        claims.settle(scan, &self.snapshot, &expected)
    }

    /// What is left of the stored tree at a line.
    fn nodes_at(&self, place: &Place<'a>) -> &'a [u8] {
        let left = place.known.nodes.map_or(0, <[u8]>::len);
        &self.nodes[self.nodes.len() - left..]
    }

    /// Every change of a bit in a line, or in the nodes that it adds, that nobody notices.
    fn unnoticed(&self, number: usize) -> (usize, Vec<String>) {
        let place = &self.lines[number];
        let nodes = self.nodes_at(place);
        let mut bytes = self.segments[place.segment][place.start..].to_vec();
        let (mut tried, mut missed) = (0, Vec::new());
        self.go_on(place, &bytes, nodes).expect("control");
        for at in 0..place.end - place.start {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                if self.go_on(place, &bytes, nodes).is_ok() {
                    missed.push(format!("record {number}, byte {at}, bit {bit}"));
                }
                bytes[at] ^= 1 << bit;
                tried += 1;
            }
        }
        let next = self.lines.get(number + 1);
        let added = nodes.len() - next.map_or(0, |next| self.nodes_at(next).len());
        let mut changed = nodes.to_vec();
        for at in 0..added {
            for bit in 0..8 {
                changed[at] ^= 1 << bit;
                if self.go_on(place, &bytes, &changed).is_ok() {
                    missed.push(format!("nodes of record {number}, byte {at}, bit {bit}"));
                }
                changed[at] ^= 1 << bit;
                tried += 1;
            }
        }
        (tried, missed)
    }

    /// The same for a file that is read as a whole.
    fn unnoticed_in(&self, name: &str) -> (usize, Vec<String>) {
        let path = self.path.join(name);
        let good = fs::read(&path).expect("read");
        let (mut tried, mut missed) = (0, Vec::new());
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut changed = good.clone();
                changed[at] ^= 1 << bit;
                fs::write(&path, &changed).expect("write");
                if verify(self.path, &Expected::default()).is_ok() {
                    missed.push(format!("{name}, byte {at}, bit {bit}"));
                }
                tried += 1;
            }
        }
        fs::write(&path, &good).expect("write");
        (tried, missed)
    }
}

impl Scan<&[u8]> {
    /// The same, with other nodes still to be read.
    fn with<'b>(&self, nodes: &'b [u8]) -> Scan<&'b [u8]> {
        Scan {
            frontier: self.frontier.clone(),
            last: self.last,
            keys: self.keys.clone(),
            nodes: Some(nodes),
            wanted: self.wanted,
            roots: self.roots,
            unfinished: self.unfinished,
            tags: self.tags.clone(),
            vouched: self.vouched,
            keep_at: None,
            bad_nodes: None,
            kept: None,
        }
    }
}

#[test]
fn every_changed_bit_of_200_records_is_found() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("log");
    make(&path);
    let whole = verify(&path, &Expected::default()).expect("control");
    assert_eq!((whole.records, whole.rotations), (RECORDS, 1));
    assert!(whole.segments > 3, "{}", whole.segments);
    let nodes = fs::read(path.join("nodes")).expect("nodes");
    let good = Good::read(&path, &nodes);
    assert_eq!(good.lines.len() as u64, RECORDS);

    let next = AtomicUsize::new(0);
    let work = || {
        let (mut tried, mut missed) = (0, Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= good.lines.len() {
                return (tried, missed);
            }
            let found = good.unnoticed(number);
            tried += found.0;
            missed.extend(found.1);
        }
    };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let (mut tried, mut missed) = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|one| one.join().expect("thread")).fold(
            (0, Vec::new()),
            |(count, mut all), (tried, missed)| {
                all.extend(missed);
                (count + tried, all)
            },
        )
    });
    for name in ["head", "key.pub"] {
        let found = good.unnoticed_in(name);
        tried += found.0;
        missed.extend(found.1);
    }
    let bytes: usize = good.segments.iter().map(Vec::len).sum();
    let small: usize = ["head", "key.pub"]
        .map(|name| fs::read(path.join(name)).expect("read").len())
        .iter()
        .sum();
    assert_eq!(tried, 8 * (bytes + nodes.len() + small), "every bit");
    assert!(missed.is_empty(), "{} of {tried}: {missed:?}", missed.len());
    verify(&path, &Expected::default()).expect("control");
}
