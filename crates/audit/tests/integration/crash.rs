//! A crash at any byte loses nothing that was acknowledged, and is repaired on open.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::*;
use brig_audit::{Log, LogError, Options, Recorder};
use brig_testing::{again, test_name};

fn cut(path: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(length).expect("cut");
}

#[test]
fn a_file_cut_at_any_offset_is_repaired_without_losing_a_whole_record() {
    let dir = tempfile::tempdir().expect("directory");
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
    let dir = tempfile::tempdir().expect("directory");
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
    let dir = tempfile::tempdir().expect("directory");
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
    let dir = tempfile::tempdir().expect("directory");
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    drop(Log::open(&whole, Options::default()).expect("open"));
    let segment = segments(&whole)[0].clone();
    let length = fs::metadata(&segment).expect("size").len();
    for end in 0..=length {
        copy(&whole, &broken);
        fs::remove_file(broken.join("head")).expect("remove");
        cut(&broken.join(segment.file_name().expect("name")), end);
        let fault = check(&broken).expect_err("not created yet");
        assert_eq!(fault.code(), "audit.unfinished", "cut at {end}: {fault}");
        drop(filled(&broken, Options::default(), 1));
        assert_eq!(check(&broken).expect("good").records, 2, "cut at {end}");
    }
}

#[test]
fn a_log_without_head_and_records_is_not_begun_anew() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), Options::default(), 3));
    let records = segments(dir.path())[0].clone();
    fs::remove_file(dir.path().join("head")).expect("remove");
    let whole = fs::read(&records).expect("read");
    fs::write(&records, "").expect("write");
    let fault = check(dir.path()).expect_err("records are missing");
    assert_ne!(fault.code(), "audit.unfinished", "{fault}");
    fs::write(&records, whole).expect("write");
    fs::remove_file(&records).expect("remove");
    let refused = Log::open(dir.path(), Options::default()).expect_err("no head");
    assert!(matches!(refused, LogError::Head(_)), "{refused}");
    assert!(segments(dir.path()).is_empty(), "nothing was written");
}

#[test]
fn a_segment_that_was_begun_and_not_written_is_gone_on_with() {
    let dir = tempfile::tempdir().expect("directory");
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
    again(&test_name!(writer_that_is_killed))
        .env(CHILD, format!("{}|{name}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start")
}

/// Collects what was acknowledged, and says when the first was.
fn kept_by(output: ChildStdout, begun: Sender<()>) -> JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let kept = lines.filter_map(|line| Some(line.strip_prefix("kept ")?.to_owned()));
        kept.inspect(|_| {
            // Only the first is waited for.
            let _ = begun.send(());
        })
        .collect()
    })
}

#[test]
fn writers_that_are_killed_lose_nothing_that_was_acknowledged() {
    const ROUNDS: u64 = 12;
    let dir = tempfile::tempdir().expect("directory");
    let mut acknowledged: Vec<String> = Vec::new();
    let mut round = 0;
    // On a slow machine it takes more rounds.
    while round < ROUNDS || acknowledged.len() <= 20 {
        assert!(round < 300, "{} records", acknowledged.len());
        let (begun, begins) = std::sync::mpsc::channel();
        let writers: Vec<_> = (0..2)
            .map(|n| {
                let mut child = writer(dir.path(), &format!("r{round}w{n}"));
                let output = child.stdout.take().expect("output");
                (child, kept_by(output, begun.clone()))
            })
            .collect();
        // Some are killed while they start, others while they write.
        if round % 2 == 1 || round >= ROUNDS {
            let first = begins.recv_timeout(Duration::from_secs(300));
            first.expect("something is kept");
        }
        let mut pause = Duration::from_millis(150 + 37 * (round % ROUNDS));
        for (mut child, kept) in writers {
            std::thread::sleep(pause);
            pause = Duration::from_millis(13 * (round % ROUNDS));
            child.kill().expect("kill");
            child.wait().expect("end");
            acknowledged.extend(kept.join().expect("reader"));
        }
        // The next one to come repairs what they left.
        let log = Log::open(dir.path(), small_segments()).expect("repaired");
        log.append(record(round)).expect("append");
        drop(log);
        check(dir.path()).expect("good");
        round += 1;
    }
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
