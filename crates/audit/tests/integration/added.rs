//! What somebody without the key puts into the directory is never signed; what a kill leaves of the
//! first use is completed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::common::*;
use brig_audit::{Durability, Hash, Head, Log, LogError, Options, Recorder, line};

fn interval() -> Options {
    Options {
        durability: Durability::Interval(std::time::Duration::from_secs(3600)),
        ..Options::default()
    }
}

/// A record that fits after the last one in every way but the key.
fn forged(path: &Path, n: u64) -> Vec<u8> {
    let last = lines(path).pop().expect("a line");
    let value: serde_json::Value = serde_json::from_str(&last).expect("json");
    let hash = Hash::from_hex(value["hash"].as_str().expect("hash").as_bytes());
    let text = serde_json::to_value(record(n)).expect("json").to_string();
    let seq = value["seq"].as_u64().expect("seq") + 1;
    let mut out = Vec::new();
    line::write(&text, seq, &hash.expect("hash"), None, &mut out);
    out
}

fn append(path: &Path, bytes: &[u8]) {
    let last = segments(path).pop().expect("a segment");
    let mut file = OpenOptions::new().append(true).open(last).expect("open");
    file.write_all(bytes).expect("write");
}

fn repairs(path: &Path) -> usize {
    let repaired = |line: &&String| line.contains("\"event\":\"log_repaired\"");
    lines(path).iter().filter(repaired).count()
}

#[test]
fn a_record_that_was_appended_by_hand_is_never_signed() {
    let dir = tempfile::tempdir().expect("directory");
    for (name, live, count) in [("next", false, 1), ("several", false, 3), ("live", true, 1)] {
        let path = dir.path().join(name);
        let log = filled(&path, Options::default(), 3);
        let log = live.then_some(log);
        for n in 0..count {
            append(&path, &forged(&path, 666 + n));
        }
        let fault = check(&path).expect_err("added");
        assert_eq!(
            (fault.code().code(), fault.record),
            ("audit.added", Some(4))
        );
        let log = log.unwrap_or_else(|| Log::open(&path, Options::default()).expect("open"));
        log.append(record(100)).expect("append");
        log.head().expect("head");
        drop(log);
        let verified = check(&path).expect("good");
        assert_eq!(verified.unsigned, 0);
        assert_eq!(executions(&path), ["e0", "e1", "e2", "e100"], "{name}");
        assert_eq!(repairs(&path), 1, "{name}");
    }
}

/// Control: what a writer of the log wrote and no head speaks for yet is kept, and signed later.
#[test]
fn what_a_writer_wrote_and_nobody_signed_yet_is_kept() {
    let dir = tempfile::tempdir().expect("directory");
    let log = filled(dir.path(), interval(), 3);
    log.note(record(3)).expect("note");
    log.note(record(4)).expect("note");
    // As if it were killed.
    std::mem::forget(log);
    let before = check(dir.path()).expect("good");
    assert_eq!(before.unsigned, 2);
    drop(filled(dir.path(), Options::default(), 1));
    assert_eq!(executions(dir.path()), ["e0", "e1", "e2", "e3", "e4", "e0"]);
    assert_eq!(
        (
            check(dir.path()).expect("good").unsigned,
            repairs(dir.path())
        ),
        (0, 0)
    );
}

/// Behind vouched records, instead of them, and in a segment of its own.
#[test]
fn forged_records_in_other_places_are_cut_or_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let whole = dir.path().join("whole");
    let log = filled(&whole, interval(), 3);
    log.note(record(3)).expect("note");
    std::mem::forget(log);
    let copied = |name: &str| {
        let path = dir.path().join(name);
        copy(&whole, &path);
        path
    };
    let behind = copied("behind");
    append(&behind, &forged(&behind, 666));
    drop(filled(&behind, Options::default(), 1));
    assert_eq!(executions(&behind), ["e0", "e1", "e2", "e3", "e0"]);
    check(&behind).expect("good");
    // The last vouched line is replaced by one that fits.
    let instead = copied("instead");
    let segment = segments(&instead).remove(0);
    let text = fs::read_to_string(&segment).expect("read");
    let kept: usize = text.split_inclusive('\n').take(4).map(str::len).sum();
    fs::write(&segment, &text[..kept]).expect("write");
    let evil = forged(&instead, 666);
    append(&instead, &evil);
    assert_eq!(check(&instead).expect_err("added").code(), "audit.added");
    drop(filled(&instead, Options::default(), 1));
    assert_eq!(executions(&instead), ["e0", "e1", "e2", "e0"]);
    assert_eq!(repairs(&instead), 1);
    // With a tag, but not with one of this key.
    let tagged = copied("tagged");
    let (other, stolen) = (dir.path().join("other"), lines(&whole).pop().expect("line"));
    drop(filled(&other, Options::default(), 3));
    let tag = &stolen[stolen.find(",\"tag\"").expect("tag")..];
    let mut evil = forged(&tagged, 666);
    evil.truncate(evil.len() - 2);
    evil.extend_from_slice(format!("{tag}\n").as_bytes());
    append(&tagged, &evil);
    let refused = Log::open(&tagged, Options::default()).expect_err("changed");
    assert!(matches!(refused, LogError::Damaged { .. }), "{refused}");
    // In the next segment.
    let next = copied("next");
    let evil = forged(&next, 666);
    fs::write(next.join(format!("{:020}.jsonl", 5)), evil).expect("write");
    drop(filled(&next, Options::default(), 1));
    assert_eq!(executions(&next), ["e0", "e1", "e2", "e3", "e0"]);
    check(&next).expect("good");
}

/// The states in which a kill can leave the first use, step by step.
#[test]
fn a_first_use_that_was_killed_at_any_step_is_completed() {
    let dir = tempfile::tempdir().expect("directory");
    let whole = dir.path().join("whole");
    drop(filled(&whole, Options::default(), 0));
    let read = |name: &str| fs::read(whole.join(name)).expect("read");
    let segment = format!("{:020}.jsonl", 0);
    let steps: [(&str, &str, &[u8]); 12] = [
        ("lock", "lock", b""),
        ("begun key", "key.new", b""),
        ("half a key", "key.new", &read("key")[..20]),
        ("key", "key", &read("key")),
        ("begun public key", "key.pub.new", b""),
        ("half a public key", "key.pub.new", &read("key.pub")[..20]),
        ("public key", "key.pub", &read("key.pub")),
        ("nodes", "nodes", b""),
        ("segment", &segment, b""),
        ("first record", &segment, &read(&segment)),
        ("nodes of it", "nodes", &read("nodes")),
        ("begun head", "head.new", &read("head")),
    ];
    for end in 1..=steps.len() {
        let path = dir.path().join(format!("step{end}"));
        fs::create_dir(&path).expect("directory");
        for (_, name, bytes) in &steps[..end] {
            fs::write(path.join(name), bytes).expect("write");
            set_mode(&path.join(name));
        }
        let step = steps[end - 1].0;
        drop(filled(&path, Options::default(), 2));
        let verified = check(&path).unwrap_or_else(|fault| panic!("after {step}: {fault}"));
        assert_eq!(verified.records, 3, "after {step}");
        let head = fs::read_to_string(path.join("head")).expect("head");
        let key = fs::read_to_string(path.join("key.pub")).expect("public key");
        let key = brig_audit::note::PublicKey::parse(&key).expect("public key");
        Head::open(&head, &key).expect("signed by it");
        if end >= 4 {
            assert_eq!(
                key.to_string() + "\n",
                String::from_utf8_lossy(&read("key.pub"))
            );
        }
    }
}

/// A log from a version that could be left so.
#[test]
fn a_missing_public_key_is_made_again_and_a_wrong_one_is_reported() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), Options::default(), 2));
    let public = dir.path().join("key.pub");
    let good = fs::read(&public).expect("read");
    fs::remove_file(&public).expect("remove");
    check(dir.path()).expect("the secret key says it too");
    drop(filled(dir.path(), Options::default(), 1));
    assert_eq!(fs::read(&public).expect("read"), good);
    let other = dir.path().join("other");
    drop(filled(&other, Options::default(), 0));
    fs::copy(other.join("key.pub"), &public).expect("copy");
    drop(filled(dir.path(), Options::default(), 1));
    assert_eq!(
        check(dir.path()).expect_err("wrong key").code(),
        "audit.key"
    );
}

fn set_mode(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("mode");
}
