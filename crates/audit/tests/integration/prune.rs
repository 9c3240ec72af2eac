//! The oldest records can go, and everything that is left is still proved; what was verified once
//! need not be read again, and a change there is still found.

use std::fs;
use std::path::Path;

use crate::common::*;
use brig_audit::log::{Cursor, read_back};
use brig_audit::proof::{prove, prove_consistency};
use brig_audit::prune::{Pruned, Wanted, prune};
use brig_audit::verify::{Expected, keys, verify, verify_since_last};
use brig_audit::{Head, Log, Recorder};
use jiff::Timestamp;

/// A record of its own second.
fn dated(n: u64) -> brig_audit::Record {
    let mut record = record(n);
    record.at = moment(n);
    record
}

fn moment(n: u64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + i64::try_from(n).expect("time")).expect("time")
}

/// In many small segments, with a change of keys; gives heads on the way.
fn long(path: &Path) -> (Log, Vec<String>) {
    let log = Log::open(path, small_segments()).expect("open");
    let mut heads = Vec::new();
    for n in 0..120 {
        log.append(dated(n)).expect("append");
        if n % 10 == 5 {
            heads.push(log.head().expect("head"));
        }
        if n == 12 {
            log.rotate_key().expect("rotate");
        }
    }
    (log, heads)
}

fn prune_to(path: &Path, n: u64) -> Pruned {
    let wanted = Wanted {
        keep_head: true,
        ..Wanted::default()
    };
    prune(path, small_segments(), moment(n), wanted).expect("pruned")
}

fn first(path: &Path) -> u64 {
    let name = segments(path)[0].file_stem().expect("name").to_owned();
    name.to_string_lossy().parse().expect("number")
}

#[test]
fn what_is_left_is_verified_and_proved_as_before() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path();
    let (log, heads) = long(path);
    let before = check(path).expect("good");
    let said = prune(
        path,
        small_segments(),
        moment(60),
        Wanted {
            dry_run: true,
            ..Wanted::default()
        },
    );
    assert!(said.expect("said").segments > 0 && first(path) == 0);
    let pruned = prune_to(path, 60);
    assert!(pruned.first > 20 && pruned.first <= 62, "{pruned:?}");
    assert_eq!(first(path), pruned.first);
    // A writer that was there before goes on, and so does a new one.
    log.append(dated(1000)).expect("append");
    drop(log);
    drop(filled(path, small_segments(), 3));
    let after = check(path).expect("good");
    assert_eq!(after.pruned, pruned.first);
    assert_eq!(after.records, before.records + 1 + 1 + 3);
    assert_eq!((after.unsigned, after.rotations), (0, 1));
    let ring = keys(path).expect("keys");
    assert_eq!(ring.len(), 2);
    // Every head from before leads to every later one, and each record that is left is proved.
    let newest = fs::read_to_string(path.join("head")).expect("head");
    for head in &heads {
        let proof = prove_consistency(path, head, &newest).expect("proof");
        proof.check(&ring).expect("holds");
        let expected = Expected {
            head: Some(head.clone()),
            key: None,
        };
        verify(path, &expected).expect("begins with it");
    }
    for seq in pruned.first..after.records {
        prove(path, seq)
            .expect("proof")
            .check(&ring)
            .expect("holds");
    }
    assert!(prove(path, pruned.first - 1).is_err());
    let kept = format!("head-{:020}", before.records);
    let kept = fs::read_to_string(path.join(kept)).expect("kept head");
    assert_eq!(Head::unverified(&kept).expect("head").size, before.records);
    // Again, and further; the newest segment always stays.
    let again = prune_to(path, 90);
    assert!(again.first > pruned.first);
    prune_to(path, 1_000_000);
    assert!(!segments(path).is_empty());
    check(path).expect("good");
    drop(filled(path, small_segments(), 1));
    check(path).expect("good");
}

#[test]
fn a_pruned_log_can_do_without_its_stored_tree() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path();
    let (log, heads) = long(path);
    drop(log);
    let pruned = prune_to(path, 60);
    fs::remove_file(path.join("nodes")).expect("remove");
    let ring = keys(path).expect("keys");
    prove(path, pruned.first + 3)
        .expect("proof")
        .check(&ring)
        .expect("holds");
    drop(filled(path, small_segments(), 3));
    let verified = check(path).expect("made again");
    for seq in pruned.first..verified.records {
        prove(path, seq)
            .expect("proof")
            .check(&ring)
            .expect("holds");
    }
    // Heads from before what was pruned need the leaves, and those are gone now.
    let newest = fs::read_to_string(path.join("head")).expect("head");
    assert!(prove_consistency(path, &heads[0], &newest).is_err());
    let late = heads.last().expect("head");
    prove_consistency(path, late, &newest)
        .expect("proof")
        .check(&ring)
        .expect("holds");
}

/// Only who has the key can make records go away.
#[test]
fn segments_that_somebody_removed_are_missed() {
    let dir = tempfile::tempdir().expect("directory");
    let (whole, other) = (dir.path().join("whole"), dir.path().join("other"));
    drop(long(&whole));
    drop(long(&other));
    let mine = dir.path().join("mine");
    let pruned = prune_to(&whole, 60);
    check(&whole).expect("control");
    // One more than what was pruned.
    copy(&whole, &mine);
    fs::remove_file(&segments(&mine)[0]).expect("remove");
    assert_eq!(
        check(&mine).expect_err("missing").code(),
        "audit.out-of-place"
    );
    // Without the base, and with one of another log.
    copy(&whole, &mine);
    fs::remove_file(mine.join("pruned")).expect("remove");
    assert_eq!(
        check(&mine).expect_err("missing").code(),
        "audit.out-of-place"
    );
    prune_to(&other, 60);
    fs::copy(other.join("pruned"), mine.join("pruned")).expect("copy");
    check(&mine).expect_err("of another log");
    assert!(Log::open(&mine, small_segments()).is_ok_and(|log| log.append(dated(1)).is_ok()));
    check(&mine).expect_err("still");
    // A base that was changed: every byte of what it says.
    let note = fs::read(whole.join("pruned")).expect("note");
    for at in 0..note.len() {
        let mut bytes = note.clone();
        bytes[at] ^= 1;
        copy(&whole, &mine);
        fs::write(mine.join("pruned"), bytes).expect("write");
        assert!(check(&mine).is_err(), "byte {at} of {}", pruned.first);
    }
}

/// A kill between the steps leaves more than is needed, never less.
#[test]
fn a_prune_that_was_killed_is_completed_by_the_next() {
    let dir = tempfile::tempdir().expect("directory");
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    drop(long(&whole));
    copy(&whole, &broken);
    let old = segments(&whole);
    let pruned = prune_to(&whole, 60);
    // The base and the record are there, and nothing was removed yet; then one after the other.
    let gone: Vec<_> = old.iter().take(pruned.segments).collect();
    let state = dir.path().join("state");
    for removed in 0..=gone.len() {
        copy(&whole, &state);
        for segment in &gone[removed..] {
            let name = segment.file_name().expect("name");
            fs::copy(broken.join(name), state.join(name)).expect("copy");
        }
        check(&state).expect("good");
        drop(filled(&state, small_segments(), 1));
        assert_eq!(first(&state), pruned.first, "{removed} were removed");
        check(&state).expect("good");
        assert_eq!(
            prove(&state, pruned.first)
                .map(|_| ())
                .map_err(|e| e.to_string()),
            Ok(())
        );
        prune_to(&state, 70);
        check(&state).expect("good");
        assert!(first(&state) >= pruned.first, "{removed} were removed");
    }
}

#[test]
fn what_was_verified_is_not_read_again_unless_it_was_changed() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path();
    let (log, heads) = long(path);
    let again = || verify_since_last(path, &Expected::default());
    assert_eq!(again().expect("good").read_from, 0, "nothing is known yet");
    let known = again().expect("good");
    assert!(known.read_from > 60, "{}", known.read_from);
    assert_eq!(known.records, check(path).expect("good").records);
    log.append(dated(500)).expect("append");
    let more = again().expect("good");
    assert_eq!(
        (more.read_from, more.records),
        (known.read_from, known.records + 1)
    );
    for head in &heads {
        let expected = Expected {
            head: Some(head.clone()),
            key: None,
        };
        verify_since_last(path, &expected).expect("begins with it");
    }
    // A change in the part that is passed over: the file says that it was changed.
    let old = &segments(path)[1];
    let good = fs::read(old).expect("read");
    let mut bad = good.clone();
    bad[300] ^= 1;
    fs::write(old, &bad).expect("write");
    assert_eq!(
        again().expect_err("changed").record,
        check(path).expect_err("changed").record
    );
    fs::write(old, &good).expect("write");
    assert_eq!(again().expect("good").read_from, 0, "read again as a whole");
    assert!(again().expect("good").read_from > 60);
    // Removed, or replaced by a file that looks the same.
    fs::remove_file(old).expect("remove");
    assert!(again().is_err());
    fs::write(old, &good).expect("write");
    assert_eq!(again().expect("good").read_from, 0);
    // The newest part is always read.
    again().expect("good");
    let new = segments(path).pop().expect("segment");
    let good = fs::read(&new).expect("read");
    let mut bad = good.clone();
    bad[300] ^= 1;
    fs::write(&new, &bad).expect("write");
    assert!(again().is_err());
    fs::write(&new, &good).expect("write");
    // A point that somebody else wrote counts for nothing.
    let note = fs::read(path.join("verified")).expect("note");
    for at in (0..note.len()).step_by(7) {
        let mut bytes = note.clone();
        bytes[at] ^= 1;
        fs::write(path.join("verified"), bytes).expect("write");
        assert_eq!(
            again().expect_err("changed").code(),
            "audit.verified",
            "byte {at}"
        );
    }
    fs::remove_file(path.join("verified")).expect("remove");
    assert_eq!(again().expect("good").read_from, 0);
}

#[test]
fn a_point_of_another_log_is_not_taken() {
    let dir = tempfile::tempdir().expect("directory");
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    drop(long(&a));
    drop(long(&b));
    check(&a).expect("good");
    fs::copy(a.join("verified"), b.join("verified")).expect("copy");
    let found = verify_since_last(&b, &Expected::default()).expect("good");
    assert_eq!(found.read_from, 0);
}

#[test]
fn reading_from_the_end_gives_the_same_as_from_the_beginning() {
    let dir = tempfile::tempdir().expect("directory");
    drop(long(dir.path()));
    let mut forwards = Vec::new();
    Cursor::new(dir.path())
        .read(|line| {
            forwards.push((line.seq, line.hash));
            true
        })
        .expect("read");
    let mut backwards = Vec::new();
    read_back(dir.path(), |line| {
        backwards.push((line.seq, line.hash));
        true
    })
    .expect("read");
    backwards.reverse();
    assert_eq!(forwards, backwards);
    let mut last = Vec::new();
    read_back(dir.path(), |line| {
        last.push(line.seq);
        last.len() < 3
    })
    .expect("read");
    let end = forwards.len() as u64;
    assert_eq!(last, [end - 1, end - 2, end - 3]);
}
