use std::fs;
use std::path::{Path, PathBuf};

use brig_audit::receipt::{Omitted, Output, Totals, Usage, digest};
use brig_audit::verify::{Expected, Verified, VerifyError, verify};
use brig_audit::{Egress, Event, Log, Options, Receipt, Record, Verdict};
use jiff::Timestamp;

pub(crate) fn record(n: u64) -> Record {
    Record {
        at: Timestamp::from_second(1_700_000_000).expect("time"),
        agent: "a".into(),
        session: "s".into(),
        execution: Some(format!("e{n}")),
        event: Event::ExecutionStarted {
            action: "run".into(),
        },
    }
}

pub(crate) fn small_segments() -> Options {
    Options {
        segment_bytes: 4096,
        ..Options::default()
    }
}

pub(crate) fn egress(host: &str, allowed: bool) -> Egress {
    Egress {
        allowed,
        code: "egress.host".into(),
        rule: Some("=evil()".into()),
        layer: None,
        protocol: "https".into(),
        host: host.into(),
        port: 443,
        ..Egress::default()
    }
}

pub(crate) fn receipt(step: u64, decision: Verdict) -> Record {
    Record {
        event: Event::Receipt(Box::new(Receipt {
            step,
            backend: "native".into(),
            policy: None,
            rule: None,
            decision,
            code: "policy.none".into(),
            reason: "no policy is loaded".into(),
            approval: None,
            trace: None,
            action: "execute".into(),
            code_digest: digest(b"print(1)"),
            started: record(0).at,
            duration_us: 1_500_000 + step,
            exit_code: Some(0),
            signal: None,
            kill_reason: None,
            usage: Usage::default(),
            stdout: Output::of("h\u{e9}llo \u{1f600}\x1b[0m\n".as_bytes(), 17, &[]),
            stderr: Output::default(),
            egress: vec![egress("example.org", false)],
            commands: Vec::new(),
            tools: Vec::new(),
            omitted: Omitted::default(),
            totals: Totals::default(),
            waived: Vec::new(),
        })),
        ..record(step)
    }
}

/// A log of `count` records besides the one that every log begins with.
pub(crate) fn filled(path: &Path, options: Options, count: u64) -> Log {
    let log = Log::open(path, options).expect("open");
    let records: Vec<Record> = (0..count).map(record).collect();
    for batch in records.chunks(7) {
        log.append_all(batch).expect("append");
    }
    log
}

pub(crate) fn check(path: &Path) -> Result<Verified, VerifyError> {
    verify(path, &Expected::default())
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("directory");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
    }
}

pub(crate) fn segments(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(path)
        .expect("list")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    all.sort();
    all
}

/// All lines of all segments.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    segments(path)
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("read");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// The executions that a log speaks of, in order.
pub(crate) fn executions(path: &Path) -> Vec<String> {
    let execution = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).expect("json");
        value["record"]["execution"].as_str().map(str::to_owned)
    };
    lines(path).iter().filter_map(execution).collect()
}
