//! What evidence costs. `cargo bench -p brig-audit`, with the number of records of the large log
//! as an argument (1000000 without one).

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brig_audit::proof::{prove, prove_consistency};
use brig_audit::receipt::{Omitted, Output, Totals, Usage, digest};
use brig_audit::verify::{Expected, verify};
use brig_audit::{Durability, Event, Log, Options, Receipt, Record, Recorder, Verdict};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

const SECONDS: u64 = 3;
const WRITERS: u64 = 8;
/// Records that are handed over together.
const BATCH: u64 = 100;

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
        approval: None,
        trace: None,
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
        omitted: Omitted::default(),
        totals: Totals::default(),
        waived: Vec::new(),
    }));
    Record {
        event,
        ..started(n)
    }
}

/// Work that was done, by the clock on the wall and by what the processor spent on it.
struct Done {
    count: u64,
    wall: Duration,
    processor: Duration,
}

impl Done {
    fn times(mut self, count: u64) -> Self {
        self.count *= count;
        self
    }
}

fn report(what: &str, done: &Done) {
    let each = |took: Duration| took.as_secs_f64() * 1e6 / done.count as f64;
    let (wall, processor) = (each(done.wall), each(done.processor));
    let rate = 1e6 / wall;
    println!("{what:<52} {wall:>10.2} µs {processor:>9.2} µs cpu {rate:>10.0} /s");
}

fn processor() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let nanoseconds = u32::try_from(spent.tv_nsec).unwrap_or(0);
    Duration::new(spent.tv_sec.unsigned_abs(), nanoseconds)
}

fn once(count: u64, work: impl FnOnce()) -> Done {
    let (start, before) = (Instant::now(), processor());
    work();
    Done {
        count,
        wall: start.elapsed(),
        processor: processor() - before,
    }
}

/// How often `work` is done by so many threads in a few seconds.
fn rate(threads: u64, work: impl Fn(u64) + Sync) -> Done {
    let (count, start) = (AtomicU64::new(0), Instant::now());
    let done = once(0, || {
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
    });
    Done {
        count: count.load(Ordering::Relaxed),
        ..done
    }
}

fn durable(dir: &Path) {
    let line = vec![b'x'; 500];
    let path = dir.join("raw");
    let raw = File::create(&path).expect("create");
    let done = rate(WRITERS, |_| {
        (&raw).write_all(&line).expect("write");
        raw.sync_data().expect("sync");
    });
    report("raw write + fdatasync, 8 writers on one file", &done);
    let done = rate(1, |_| {
        for _ in 0..WRITERS {
            (&raw).write_all(&line).expect("write");
        }
        raw.sync_data().expect("sync");
    });
    report(
        "raw write of 8 lines + fdatasync, per line",
        &done.times(WRITERS),
    );

    let log = Log::open(dir.join("durable"), Options::default()).expect("open");
    let done = rate(1, |n| log.append(started(n)).expect("append"));
    report("durable append, 1 writer", &done);
    let done = rate(WRITERS, |n| log.append(started(n)).expect("append"));
    report("durable append, 8 writers", &done);
    let done = rate(WRITERS, |n| {
        let batch: Vec<Record> = (0..32).map(|_| started(n)).collect();
        log.append_all(&batch).expect("append");
    });
    report(
        "durable append, 8 writers, 32 records at a time",
        &done.times(32),
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
        let done = rate(1, |n| {
            let pending = log.begin(vec![started(n), started(n), started(n)]);
            pending.wait().expect("begin");
            let end = vec![started(n), receipt(n), started(n)];
            log.conclude(end).wait().expect("conclude");
        });
        report(&format!("one execution, durability {name}"), &done);
        drop(log);
        let done = rate(1, |_| drop(Log::open(&path, options).expect("open")));
        report(&format!("open a log, durability {name}"), &done);
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
        let batch: Vec<Record> = (0..BATCH).map(make).collect();
        // Records are made by others; what is measured begins when they are handed over.
        let mut all = Vec::new();
        let mut done = once(0, || {});
        while done.wall < Duration::from_secs(SECONDS) {
            let batch = batch.clone();
            let one = once(BATCH, || log.conclude(batch).wait().expect("append"));
            done.count += one.count;
            done.wall += one.wall;
            done.processor += one.processor;
            all.push(one);
        }
        // Now and then a segment is full, and is synced before the next one is begun.
        report(&format!("append chained and buffered, {what}, mean"), &done);
        all.sort_by_key(|one| one.wall);
        let median = all.swap_remove(all.len() / 2);
        report(
            &format!("append chained and buffered, {what}, median"),
            &median,
        );
    }
    let done = rate(1, |n| log.note(started(n)).expect("note"));
    report("append chained, one write each", &done);
}

fn large(dir: &Path, records: u64) {
    let path = dir.join("large");
    let options = Options {
        durability: Durability::Interval(Duration::from_secs(3600)),
        ..Options::default()
    };
    let log = Log::open(&path, options).expect("open");
    let mut half = String::new();
    for start in (0..records).step_by(1000) {
        if half.is_empty() && start + 1000 > records / 2 {
            half = log.head().expect("head");
        }
        let batch = (start..start + 1000).map(|n| if n % 4 == 3 { receipt(n) } else { started(n) });
        log.conclude(batch.collect()).wait().expect("append");
    }
    let head = log.head().expect("head");
    drop(log);
    let bytes: u64 = fs::read_dir(&path)
        .expect("list")
        .map(|entry| entry.expect("entry").metadata().expect("size").len())
        .sum();
    println!("a log of {records} records, {} MiB", bytes >> 20);
    let done = once(records, || {
        verify(&path, &Expected::default()).expect("good");
    });
    report("verify, per record", &done);
    let done = rate(1, |_| {
        let seq = u64::from(Timestamp::now().subsec_nanosecond().unsigned_abs()) % records;
        prove(&path, seq).expect("proof");
    });
    report("inclusion proof", &done);
    let done = rate(1, |_| {
        prove_consistency(&path, &half, &head).expect("proof");
    });
    report("consistency proof", &done);
    let done = rate(1, |_| drop(Log::open(&path, options).expect("open")));
    report("open", &done);
    let memory = fs::read_to_string("/proc/self/status").expect("status");
    let peak = memory.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
}

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let records = numbers.next_back().unwrap_or(1_000_000);
    let dir = tempfile::tempdir_in(".").expect("directory");
    buffered(dir.path());
    durable(dir.path());
    execution(dir.path());
    large(dir.path(), records);
}
