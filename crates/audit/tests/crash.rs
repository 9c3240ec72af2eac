//! A crash at any byte loses nothing that was acknowledged, and is repaired on open.

mod common;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brig_audit::{Log, LogError, Options, Recorder};
use common::*;

fn cut(path: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(length).expect("cut");
}

#[test]
fn a_file_cut_at_any_offset_is_repaired_without_losing_a_whole_record() {
    let dir = tempfile::tempdir().expect("folder");
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    let log = filled(&whole, Options::default(), 3);
    let segment = segments(&whole)[0].clone();
    let safe = fs::metadata(&segment).expect("size").len();
    let head = fs::read(whole.join("head")).expect("head");
    // Written, but no head was signed for it: as after a crash before the disk answered.
    for n in 3..8 {
        log.note(record(n)).expect("note");
    }
    drop(log);
    fs::write(whole.join("head"), &head).expect("write");
    let bytes = fs::read(&segment).expect("read");
    let name = segment.file_name().expect("name");

    for end in safe..=bytes.len() as u64 {
        copy(&whole, &broken);
        cut(&broken.join(name), end);
        let kept = bytes[..end as usize]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        let torn = !bytes[..end as usize].ends_with(b"\n");
        let log = Log::open(&broken, Options::default()).expect("repaired");
        log.append(record(100)).expect("append");
        drop(log);
        let expected: Vec<String> = (0..kept as u64 - 1)
            .chain([100])
            .map(|n| format!("e{n}"))
            .collect();
        assert_eq!(executions(&broken), expected, "cut at {end}");
        let repaired = lines(&broken)
            .iter()
            .filter(|line| line.contains("\"event\":\"log_repaired\""))
            .count();
        assert_eq!(repaired, usize::from(torn), "cut at {end}");
        check(&broken).expect("good");
    }
}

#[test]
fn garbage_where_a_record_was_begun_is_cut_off() {
    let dir = tempfile::tempdir().expect("folder");
    for rest in [&b"\0"[..], &[0; 5000], b"{\"hash\":\"", b"\xff\xfe"] {
        let path = dir.path().join(rest.len().to_string());
        drop(filled(&path, Options::default(), 3));
        let mut file = OpenOptions::new()
            .append(true)
            .open(&segments(&path)[0])
            .expect("open");
        file.write_all(rest).expect("write");
        assert_eq!(check(&path).expect("good").unfinished, rest.len() as u64);
        drop(filled(&path, Options::default(), 1));
        let verified = check(&path).expect("good");
        assert_eq!((verified.records, verified.unfinished), (6, 0));
    }
}

/// What a head speaks of was acknowledged. If it is gone, that was no crash.
#[test]
fn a_file_cut_before_its_head_is_refused_and_named() {
    let dir = tempfile::tempdir().expect("folder");
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    drop(filled(&whole, Options::default(), 4));
    let segment = segments(&whole)[0].clone();
    let bytes = fs::read(&segment).expect("read");
    let name = segment.file_name().expect("name");
    for end in 0..bytes.len() {
        copy(&whole, &broken);
        cut(&broken.join(name), end as u64);
        let kept = bytes[..end].iter().filter(|byte| **byte == b'\n').count() as u64;
        let refused = Log::open(&broken, Options::default()).expect_err("cut");
        match refused {
            LogError::Truncated { found, expected } => {
                assert_eq!((found, expected), (kept, 5), "cut at {end}");
            }
            other => panic!("cut at {end}: {other}"),
        }
        let fault = check(&broken).expect_err("cut");
        assert_eq!(fault.code(), "audit.truncated", "cut at {end}: {fault}");
        assert_eq!(fault.record, Some(kept), "cut at {end}: {fault}");
    }
}

#[test]
fn a_log_whose_making_was_cut_short_is_made_again() {
    let dir = tempfile::tempdir().expect("folder");
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    drop(Log::open(&whole, Options::default()).expect("open"));
    let segment = segments(&whole)[0].clone();
    let length = fs::metadata(&segment).expect("size").len();
    for end in 0..=length {
        copy(&whole, &broken);
        fs::remove_file(broken.join("head")).expect("remove");
        cut(&broken.join(segment.file_name().expect("name")), end);
        drop(filled(&broken, Options::default(), 1));
        assert_eq!(check(&broken).expect("good").records, 2, "cut at {end}");
    }
}

#[test]
fn a_segment_that_was_begun_and_not_written_is_gone_on_with() {
    let dir = tempfile::tempdir().expect("folder");
    drop(filled(dir.path(), Options::default(), 3));
    fs::write(dir.path().join(format!("{:020}.jsonl", 4)), b"").expect("write");
    check(dir.path()).expect("good");
    drop(filled(dir.path(), Options::default(), 3));
    assert_eq!(check(dir.path()).expect("good").records, 7);
    assert_eq!(segments(dir.path()).len(), 2);
}

const CHILD: &str = "BRIG_AUDIT_TEST_WRITER";

/// Not a test of its own: appends until it is killed, and tells what was acknowledged.
#[test]
fn writer_that_is_killed() {
    let Ok(work) = std::env::var(CHILD) else {
        return;
    };
    let (path, name) = work.split_once('|').expect("arguments");
    let log = Log::open(path, small_segments()).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let log = &log;
            scope.spawn(move || {
                for n in 0.. {
                    let mut own = record(n);
                    own.execution = Some(format!("{name}-{thread}-{n}"));
                    let kept = match n % 3 {
                        0 => log.append(own),
                        1 => log.note(own),
                        _ => log.begin(vec![own]).wait(),
                    };
                    kept.expect("kept");
                    println!("kept {name}-{thread}-{n}");
                }
            });
        }
    });
}

fn writer(path: &Path, name: &str) -> Child {
    Command::new(std::env::current_exe().expect("own path"))
        .args(["writer_that_is_killed", "--exact", "--nocapture"])
        .env(CHILD, format!("{}|{name}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start")
}

#[test]
fn writers_that_are_killed_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("folder");
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..12 {
        let writers: Vec<Child> = (0..2)
            .map(|n| writer(dir.path(), &format!("r{round}w{n}")))
            .collect();
        let mut pause = Duration::from_millis(150 + 37 * round);
        for mut child in writers {
            std::thread::sleep(pause);
            pause = Duration::from_millis(13 * round);
            child.kill().expect("kill");
            let output = child.stdout.take().expect("output");
            child.wait().expect("end");
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                acknowledged.extend(line.strip_prefix("kept ").map(str::to_owned));
            }
        }
        // The next one to come repairs what they left.
        let log = Log::open(dir.path(), small_segments()).expect("repaired");
        log.append(record(round)).expect("append");
        drop(log);
        check(dir.path()).expect("good");
    }
    assert!(acknowledged.len() > 20, "{} records", acknowledged.len());
    let found: std::collections::HashSet<String> = executions(dir.path()).into_iter().collect();
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|one| !found.contains(*one))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
}
