//! Whatever is done to a log afterwards is found, and the first bad record is named.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::*;
use brig_audit::note::PublicKey;
use brig_audit::verify::{Expected, VerifyError, VerifyErrorKind, verify};
use brig_audit::{Hash, Log, Options, line};

fn write_lines(path: &Path, lines: &[String]) {
    let mut text = lines.join("\n");
    text.push('\n');
    fs::write(&segments(path)[0], text).expect("write");
}

/// A log of ten records besides the first, changed line by line.
fn changed(change: impl FnOnce(&mut Vec<String>)) -> VerifyError {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), Options::default(), 10));
    check(dir.path()).expect("control");
    let mut all = lines(dir.path());
    change(&mut all);
    write_lines(dir.path(), &all);
    check(dir.path()).expect_err("changed")
}

/// The same record with another number or predecessor, and a hash that fits.
fn forge(line: &str, edit: impl FnOnce(String) -> String, seq: u64, prev: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).expect("json");
    let record = edit(value["record"].to_string());
    let prev = Hash::from_hex(prev.as_bytes()).expect("hash");
    let mut out = Vec::new();
    line::write(&record, seq, &prev, None, &mut out);
    String::from_utf8(out).expect("text").trim_end().to_owned()
}

fn field(line: &str, name: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).expect("json");
    value[name].as_str().expect("text").to_owned()
}

#[test]
fn an_edited_record_is_named() {
    let fault = changed(|lines| lines[4] = lines[4].replace("\"e3\"", "\"e9\""));
    assert_eq!(
        (fault.record, fault.kind),
        (Some(4), VerifyErrorKind::Changed)
    );
}

#[test]
fn an_edited_record_with_a_new_hash_is_found_at_the_next_one() {
    let fault = changed(|lines| {
        let prev = field(&lines[4], "prev");
        lines[4] = forge(
            &lines[4],
            |record| record.replace("\"e3\"", "\"e9\""),
            4,
            &prev,
        );
    });
    assert_eq!(
        (fault.record, fault.kind),
        (Some(4), VerifyErrorKind::Nodes)
    );
}

#[test]
fn a_removed_record_is_named() {
    let fault = changed(|lines| drop(lines.remove(4)));
    assert_eq!(
        (fault.record, fault.kind),
        (Some(4), VerifyErrorKind::OutOfPlace(5))
    );
}

#[test]
fn exchanged_records_are_named() {
    let fault = changed(|lines| lines.swap(4, 7));
    assert_eq!(
        (fault.record, fault.kind),
        (Some(4), VerifyErrorKind::OutOfPlace(7))
    );
}

#[test]
fn a_repeated_record_is_named() {
    let fault = changed(|lines| lines.insert(5, lines[4].clone()));
    assert_eq!(
        (fault.record, fault.kind),
        (Some(5), VerifyErrorKind::OutOfPlace(4))
    );
}

#[test]
fn a_removed_end_is_named() {
    for kept in 1..11 {
        let fault = changed(|lines| lines.truncate(kept));
        let expected = (Some(kept as u64), VerifyErrorKind::Truncated(11));
        assert_eq!((fault.record, fault.kind), expected, "{kept}");
    }
}

#[test]
fn a_line_that_is_no_record_is_named() {
    for text in ["", "{}", "hello", "\u{1b}[2J"] {
        let fault = changed(|lines| lines.insert(6, text.into()));
        assert_eq!(
            (fault.record, fault.kind),
            (Some(6), VerifyErrorKind::NotARecord)
        );
        let fault = changed(|lines| lines.push(text.into()));
        assert_eq!(
            (fault.record, fault.kind),
            (Some(11), VerifyErrorKind::NotARecord)
        );
    }
}

#[test]
fn a_missing_segment_is_named() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("log");
    drop(filled(&path, small_segments(), 60));
    let all = segments(&path);
    assert!(all.len() > 3);
    for gone in &all {
        let copied = dir.path().join("copy");
        copy(&path, &copied);
        fs::remove_file(copied.join(gone.file_name().expect("name"))).expect("remove");
        let fault = check(&copied).expect_err("missing");
        let first: u64 = gone
            .file_stem()
            .expect("name")
            .to_str()
            .expect("name")
            .parse()
            .expect("number");
        assert_eq!(fault.record, Some(first), "{fault}");
    }
}

/// Makes a log look as if only `records` had ever been written.
fn reforge(path: &Path, records: u64) {
    drop(filled(path, Options::default(), records));
}

#[test]
fn a_rollback_and_a_replacement_are_found_with_a_head_from_elsewhere() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("log");
    let early = dir.path().join("early");
    let log = filled(&path, Options::default(), 5);
    copy(&path, &early);
    log.append_all(&[record(5), record(6)]).expect("append");
    let head = log.head().expect("head");
    let key = fs::read_to_string(path.join("key.pub")).expect("key");
    let key = PublicKey::parse(&key).expect("key");
    let expected = Expected {
        head: Some(head),
        key: Some(key),
    };
    verify(&path, &expected).expect("control");

    // Older files put back: in order by themselves, but not with what was seen of them.
    check(&early).expect("control");
    let fault = verify(&early, &expected).expect_err("rolled back");
    assert_eq!(
        (fault.record, fault.kind),
        (Some(6), VerifyErrorKind::Truncated(8))
    );

    // Gone on with after that, with the log's own key.
    let log = Log::open(&early, Options::default()).expect("open");
    for n in 0..9 {
        log.append_all(&[record(n)]).expect("append");
    }
    check(&early).expect("control");
    let fault = verify(&early, &expected).expect_err("another history");
    assert_eq!(fault.kind, VerifyErrorKind::Replaced(8));

    // A log with another key altogether.
    let other = dir.path().join("other");
    reforge(&other, 20);
    check(&other).expect("control");
    let fault = verify(&other, &expected).expect_err("another log");
    assert!(matches!(fault.kind, VerifyErrorKind::Key(_)), "{fault}");
    let only_head = Expected {
        key: None,
        ..expected
    };
    let fault = verify(&other, &only_head).expect_err("another log");
    assert!(
        matches!(fault.kind, VerifyErrorKind::GivenHead(_)),
        "{fault}"
    );
}

#[test]
fn a_log_that_was_forged_from_one_record_on_needs_the_key() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), Options::default(), 10));
    let mut all = lines(dir.path());
    let mut prev = field(&all[4], "prev");
    for (seq, line) in all.iter_mut().enumerate().skip(4) {
        *line = forge(
            line,
            |record| record.replace("\"a\"", "\"b\""),
            seq as u64,
            &prev,
        );
        prev = field(line, "hash");
    }
    write_lines(dir.path(), &all);
    assert_eq!(check(dir.path()).expect_err("forged").code(), "audit.nodes");
    // Even with a tree that fits, the head does not.
    let mut frontier = brig_audit::tree::Frontier::default();
    let mut nodes = Vec::new();
    for line in &all {
        let hash = Hash::from_hex(field(line, "hash").as_bytes()).expect("hash");
        frontier.push(hash, |hash| nodes.extend_from_slice(&hash.0));
    }
    fs::write(dir.path().join("nodes"), &nodes).expect("write");
    let fault = check(dir.path()).expect_err("forged");
    assert!(matches!(fault.kind, VerifyErrorKind::Head(_)), "{fault}");
}

/// Changes one byte after the other, and puts each back.
fn flip(path: &Path, step: impl Fn(usize) -> std::ops::Range<u32>, mut seen: impl FnMut(String)) {
    for entry in fs::read_dir(path).expect("list") {
        let file_path = entry.expect("entry").path();
        let name = file_path
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        if name == "lock" || name == "key" {
            continue;
        }
        let good = fs::read(&file_path).expect("read");
        let file = OpenOptions::new()
            .write(true)
            .open(&file_path)
            .expect("open");
        for (at, byte) in good.iter().enumerate() {
            for bit in step(at) {
                file.write_all_at(&[byte ^ (1 << bit)], at as u64)
                    .expect("write");
                if check(path).is_ok() {
                    seen(format!("{name}, byte {at}, bit {bit}"));
                }
            }
            file.write_all_at(&[*byte], at as u64).expect("write");
        }
    }
}

/// Through the files. That every bit of 200 records is found is a test of `verify` itself.
#[test]
fn a_changed_bit_in_every_byte_of_every_file_is_found() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), small_segments(), 29));
    assert_eq!(check(dir.path()).expect("control").records, 30);
    assert!(segments(dir.path()).len() > 1);
    let mut missed = Vec::new();
    let one = |at: usize| {
        let bit = (at as u32 * 5 + 3) % 8;
        bit..bit + 1
    };
    flip(dir.path(), one, |place| missed.push(place));
    assert!(missed.is_empty(), "{missed:?}");
    check(dir.path()).expect("control");
}
