#![allow(dead_code, reason = "every test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use brig_audit::verify::{Expected, Fault, Verified, verify};
use brig_audit::{Event, Log, Options, Record};
use jiff::Timestamp;

pub fn record(n: u64) -> Record {
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

pub fn small_segments() -> Options {
    Options {
        segment_bytes: 4096,
        ..Options::default()
    }
}

/// A log of `count` records besides the one that every log begins with.
pub fn filled(path: &Path, options: Options, count: u64) -> Log {
    let log = Log::open(path, options).expect("open");
    let records: Vec<Record> = (0..count).map(record).collect();
    for batch in records.chunks(7) {
        log.append_all(batch).expect("append");
    }
    log
}

pub fn check(path: &Path) -> Result<Verified, Fault> {
    verify(path, &Expected::default())
}

pub fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("folder");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
    }
}

pub fn segments(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(path)
        .expect("list")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    all.sort();
    all
}

/// All lines of all segments.
pub fn lines(path: &Path) -> Vec<String> {
    segments(path)
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("read");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// The executions that a log speaks of, in order.
pub fn executions(path: &Path) -> Vec<String> {
    let execution = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).expect("json");
        value["record"]["execution"].as_str().map(str::to_owned)
    };
    lines(path).iter().filter_map(execution).collect()
}
