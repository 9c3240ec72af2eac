//! What evidence costs. `cargo bench -p brig-audit`, with the number of records of the large log
//! as an argument (1000000 without one).

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brig_audit::proof::{prove, prove_consistency};
use brig_audit::receipt::{Output, Usage, digest};
use brig_audit::verify::{Expected, verify};
use brig_audit::{Durability, Event, Log, Options, Receipt, Record, Recorder, Verdict};
use jiff::Timestamp;

const SECONDS: u64 = 3;
const WRITERS: u64 = 8;

fn started(n: u64) -> Record {
    Record {
        at: Timestamp::now(),
        agent: "research-agent".into(),
        session: "0199b7a2-5a0e-7d2c-9c57-0a6c0d2f4b11".into(),
        execution: Some(format!("0199b7a2-5a0e-7d2c-9c57-{n:012}")),
        event: Event::ExecutionStarted {
            action: "execute".into(),
        },
    }
}

fn receipt(n: u64) -> Record {
    let event = Event::Receipt(Box::new(Receipt {
        step: n,
        backend: "native".into(),
        policy: Some(digest(b"policy")),
        rule: Some("allow-code".into()),
        decision: Verdict::Allowed,
        code: "policy.rule".into(),
        reason: "rule `allow-code` allows it".into(),
        action: "execute".into(),
        code_digest: digest(b"print(1)"),
        started: Timestamp::now(),
        duration_us: 12_345,
        exit_code: Some(0),
        signal: None,
        kill_reason: None,
        usage: Usage::default(),
        stdout: Output::of(b"hello, world\n", 13, &[]),
        stderr: Output::default(),
        egress: Vec::new(),
        commands: Vec::new(),
        tools: Vec::new(),
        waived: Vec::new(),
    }));
    Record {
        event,
        ..started(n)
    }
}

fn report(what: &str, count: u64, took: Duration) {
    let each = took.as_secs_f64() / count as f64;
    let (value, unit) = match each {
        each if each < 1e-3 => (each * 1e6, "µs"),
        each => (each * 1e3, "ms"),
    };
    println!("{what:<58} {value:>9.2} {unit}  {:>10.0} /s", 1.0 / each);
}

/// How often `work` is done by so many threads in a few seconds.
fn rate(threads: u64, work: impl Fn(u64) + Sync) -> (u64, Duration) {
    let (count, start) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (count, work) = (&count, &work);
            scope.spawn(move || {
                while start.elapsed() < Duration::from_secs(SECONDS) {
                    work(thread);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (count.load(Ordering::Relaxed), start.elapsed())
}

fn durable(dir: &Path) {
    let line = vec![b'x'; 500];
    let path = dir.join("raw");
    let raw = File::create(&path).expect("create");
    let (count, took) = rate(WRITERS, |_| {
        (&raw).write_all(&line).expect("write");
        raw.sync_data().expect("sync");
    });
    report("raw write + fdatasync, 8 writers on one file", count, took);
    let (count, took) = rate(1, |_| {
        for _ in 0..WRITERS {
            (&raw).write_all(&line).expect("write");
        }
        raw.sync_data().expect("sync");
    });
    report(
        "raw write of 8 lines + fdatasync, per line",
        count * WRITERS,
        took,
    );

    let log = Log::open(dir.join("durable"), Options::default()).expect("open");
    let (count, took) = rate(1, |n| log.append(started(n)).expect("append"));
    report("durable append, 1 writer", count, took);
    let (count, took) = rate(WRITERS, |n| log.append(started(n)).expect("append"));
    report("durable append, 8 writers", count, took);
    let (count, took) = rate(WRITERS, |n| {
        let batch: Vec<Record> = (0..32).map(|_| started(n)).collect();
        log.append_all(&batch).expect("append");
    });
    report(
        "durable append, 8 writers, 32 records at a time",
        count * 32,
        took,
    );
}

fn execution(dir: &Path) {
    for (name, durability) in [
        ("always", Durability::Always),
        ("interval", Durability::Interval(Duration::from_secs(1))),
    ] {
        let options = Options {
            durability,
            ..Options::default()
        };
        let path = dir.join(name);
        let log = Log::open(&path, options).expect("open");
        let (count, took) = rate(1, |n| {
            let pending = log.begin(vec![started(n), started(n), started(n)]);
            pending.wait().expect("begin");
            let end = vec![started(n), receipt(n), started(n)];
            log.conclude(end).expect("conclude");
        });
        report(&format!("one execution, durability {name}"), count, took);
        drop(log);
        let (count, took) = rate(1, |_| drop(Log::open(&path, options).expect("open")));
        report(&format!("open a log, durability {name}"), count, took);
    }
}

fn buffered(dir: &Path) {
    let options = Options {
        durability: Durability::Interval(Duration::from_secs(3600)),
        ..Options::default()
    };
    let log = Log::open(dir.join("buffered"), options).expect("open");
    for (what, make) in [
        ("started", started as fn(u64) -> Record),
        ("receipt", receipt),
    ] {
        let batch: Vec<Record> = (0..1000).map(make).collect();
        let (count, took) = rate(1, |_| log.conclude(batch.clone()).expect("append"));
        report(
            &format!("append chained and buffered, {what}"),
            count * 1000,
            took,
        );
    }
    let (count, took) = rate(1, |n| log.note(started(n)).expect("note"));
    report("append chained, one write each", count, took);
}

fn large(dir: &Path, records: u64) {
    let path = dir.join("large");
    let options = Options {
        durability: Durability::Interval(Duration::from_secs(3600)),
        ..Options::default()
    };
    let log = Log::open(&path, options).expect("open");
    let half = log.head().expect("head");
    for start in (0..records).step_by(1000) {
        let batch = (start..start + 1000).map(|n| if n % 4 == 3 { receipt(n) } else { started(n) });
        log.conclude(batch.collect()).expect("append");
    }
    let head = log.head().expect("head");
    drop(log);
    let bytes: u64 = fs::read_dir(&path)
        .expect("list")
        .map(|entry| entry.expect("entry").metadata().expect("size").len())
        .sum();
    println!("a log of {records} records, {} MiB", bytes >> 20);
    let start = Instant::now();
    let verified = verify(&path, &Expected::default()).expect("good");
    report("verify, per record", verified.records, start.elapsed());
    let (count, took) = rate(1, |_| {
        let seq = u64::from(Timestamp::now().subsec_nanosecond().unsigned_abs()) % records;
        prove(&path, seq).expect("proof");
    });
    report("inclusion proof", count, took);
    let (count, took) = rate(1, |_| {
        prove_consistency(&path, &half, &head).expect("proof");
    });
    report("consistency proof", count, took);
    let (count, took) = rate(1, |_| drop(Log::open(&path, options).expect("open")));
    report("open", count, took);
    let memory = fs::read_to_string("/proc/self/status").expect("status");
    let peak = memory.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
}

fn main() {
    let numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let records = numbers.last().unwrap_or(1_000_000);
    let dir = tempfile::tempdir_in(".").expect("folder");
    buffered(dir.path());
    durable(dir.path());
    execution(dir.path());
    large(dir.path(), records);
}
