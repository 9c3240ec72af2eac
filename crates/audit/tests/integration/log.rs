//! The log on disk: what is written is there, in order, across segments, processes and crashes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::*;
use brig_audit::note::PublicKey;
use brig_audit::verify::{Expected, VerifyErrorKind, verify};
use brig_audit::{Durability, Head, Log, LogError, Options, Recorder};

#[test]
fn what_was_appended_is_there_in_order_after_reopening() {
    let dir = tempfile::tempdir().expect("directory");
    for round in 0..5 {
        let log = Log::open(dir.path(), Options::default()).expect("open");
        for n in 0..10 {
            log.append(record(round * 10 + n)).expect("append");
        }
    }
    let expected: Vec<String> = (0..50).map(|n| format!("e{n}")).collect();
    assert_eq!(executions(dir.path()), expected);
    let verified = check(dir.path()).expect("good");
    assert_eq!((verified.records, verified.unsigned), (51, 0));
}

#[test]
fn a_line_is_json_that_any_tool_can_read_and_hash() {
    let dir = tempfile::tempdir().expect("directory");
    filled(dir.path(), Options::default(), 3);
    let mut last = "0".repeat(64);
    for (seq, line) in lines(dir.path()).iter().enumerate() {
        let value: serde_json::Value = serde_json::from_str(line).expect("json");
        assert_eq!(value["seq"], seq);
        assert_eq!(value["prev"], last);
        // By hand: the line without its first field, after a zero byte.
        let rest = line.split_once(',').expect("fields").1;
        let leaf = brig_audit::Hash::leaf(format!("{{{rest}").as_bytes());
        assert_eq!(value["hash"], leaf.to_string());
        last = leaf.to_string();
    }
}

#[test]
fn segments_follow_each_other_without_a_break() {
    let dir = tempfile::tempdir().expect("directory");
    let log = filled(dir.path(), small_segments(), 100);
    drop(log);
    assert!(segments(dir.path()).len() > 3);
    let log = filled(dir.path(), small_segments(), 30);
    log.append(record(1000)).expect("append");
    let verified = check(dir.path()).expect("good");
    assert_eq!(verified.records, 132);
    assert_eq!(verified.segments as usize, segments(dir.path()).len());
}

#[test]
fn two_logs_on_one_folder_see_what_the_other_writes() {
    let dir = tempfile::tempdir().expect("directory");
    let a = Log::open(dir.path(), small_segments()).expect("open");
    let b = Log::open(dir.path(), small_segments()).expect("open");
    for n in 0..100 {
        if n % 3 == 0 { &a } else { &b }
            .append(record(n))
            .expect("append");
    }
    let expected: Vec<String> = (0..100).map(|n| format!("e{n}")).collect();
    assert_eq!(executions(dir.path()), expected);
    assert_eq!(check(dir.path()).expect("good").records, 101);
}

#[test]
fn threads_share_a_log() {
    let dir = tempfile::tempdir().expect("directory");
    let log = Log::open(dir.path(), small_segments()).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..20 {
                    let number = thread * 100 + n;
                    match n % 4 {
                        0 => log.append(record(number)).expect("append"),
                        1 => log.note(record(number)).expect("note"),
                        2 => log.conclude(vec![record(number)]).wait().expect("conclude"),
                        _ => log.begin(vec![record(number)]).wait().expect("begin"),
                    }
                }
            });
        }
    });
    let found = executions(dir.path());
    assert_eq!(found.len(), 160);
    for thread in 0..8 {
        let own: Vec<u64> = found
            .iter()
            .map(|name| name[1..].parse().expect("number"))
            .filter(|number| number / 100 == thread)
            .collect();
        assert!(own.is_sorted() && own.len() == 20, "{own:?}");
    }
    check(dir.path()).expect("good");
}

#[test]
fn a_note_is_in_the_file_at_once_and_signed_with_what_comes_next() {
    let dir = tempfile::tempdir().expect("directory");
    let log = Log::open(dir.path(), Options::default()).expect("open");
    log.note(record(1)).expect("note");
    assert_eq!(executions(dir.path()), ["e1"]);
    assert_eq!(check(dir.path()).expect("good").unsigned, 1);
    log.append(record(2)).expect("append");
    assert_eq!(check(dir.path()).expect("good").unsigned, 0);
}

#[test]
fn an_interval_delays_the_head_of_results_but_not_of_what_must_come_first() {
    let every = |interval| Options {
        durability: Durability::Interval(interval),
        ..Options::default()
    };
    let dir = tempfile::tempdir().expect("directory");
    let log = Log::open(dir.path(), every(Duration::from_secs(3600))).expect("open");
    log.begin(vec![record(1)]).wait().expect("begin");
    assert_eq!(check(dir.path()).expect("good").unsigned, 0);
    log.conclude(vec![record(2)]).wait().expect("conclude");
    assert_eq!(executions(dir.path()), ["e1", "e2"]);
    assert_eq!(check(dir.path()).expect("good").unsigned, 1);
    drop(log);
    assert_eq!(check(dir.path()).expect("good").unsigned, 0);

    let log = Log::open(dir.path(), every(Duration::from_millis(50))).expect("open");
    log.conclude(vec![record(3)]).wait().expect("conclude");
    let signed = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        check(dir.path()).expect("good").unsigned == 0
    });
    assert!(signed, "the interval has passed");
    log.conclude(vec![record(4)]).wait().expect("conclude");
    drop(log);
    assert_eq!(check(dir.path()).expect("good").unsigned, 0);
}

#[test]
fn a_future_answers_when_the_records_are_safe() {
    use std::future::Future;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake};

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let dir = tempfile::tempdir().expect("directory");
    let log = Log::open(dir.path(), Options::default()).expect("open");
    let mut pending = std::pin::pin!(log.begin(vec![record(1), record(2)]));
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    while pending.as_mut().poll(&mut context).is_pending() {
        std::thread::park();
    }
    assert!(matches!(
        pending.as_mut().poll(&mut context),
        Poll::Ready(Ok(()))
    ));
    assert_eq!(executions(dir.path()), ["e1", "e2"]);
    assert_eq!(check(dir.path()).expect("good").unsigned, 0);
}

#[test]
fn the_key_is_made_once_and_kept_from_others() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("audit");
    drop(filled(&path, Options::default(), 1));
    let mode = |name: &str| {
        let metadata = fs::metadata(path.join(name)).expect("file");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        fs::metadata(&path).expect("directory").permissions().mode() & 0o777,
        0o700
    );
    for name in ["key", "head", "lock", "nodes", "00000000000000000000.jsonl"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let before = fs::read(path.join("key")).expect("key");
    drop(filled(&path, Options::default(), 1));
    assert_eq!(fs::read(path.join("key")).expect("key"), before);

    fs::set_permissions(path.join("key"), fs::Permissions::from_mode(0o640)).expect("mode");
    let refused = Log::open(&path, Options::default()).expect_err("others may read it");
    assert_eq!(refused.code(), "audit.key");
    fs::set_permissions(path.join("key"), fs::Permissions::from_mode(0o600)).expect("mode");
    Log::open(&path, Options::default()).expect("control");
    fs::remove_file(path.join("key")).expect("remove");
    let refused = Log::open(&path, Options::default()).expect_err("the key is lost");
    assert_eq!(refused.code(), "audit.key");
}

#[test]
fn keys_rotate_and_vouch_for_each_other() {
    let dir = tempfile::tempdir().expect("directory");
    let log = filled(dir.path(), Options::default(), 5);
    let other = Log::open(dir.path(), Options::default()).expect("open");
    let key = |name: &str| {
        let text = fs::read_to_string(dir.path().join(name)).expect("key");
        PublicKey::parse(&text).expect("key")
    };
    let (first, first_head) = (key("key.pub"), log.head().expect("head"));
    log.rotate_key().expect("rotate");
    let second = key("key.pub");
    assert_ne!(first, second);
    // The other one signs with the new key as well.
    other.append(record(7)).expect("append");
    let second_head = other.head().expect("head");
    Head::open(&second_head, &second).expect("new key");
    assert!(Head::open(&second_head, &first).is_err());
    log.rotate_key().expect("rotate");
    drop((log, other));
    drop(filled(dir.path(), Options::default(), 2));

    for key in [&first, &second, &key("key.pub")] {
        for head in [&first_head, &second_head] {
            let expected = Expected {
                head: Some(head.clone()),
                key: Some(key.clone()),
            };
            let verified = verify(dir.path(), &expected).expect("any key, any head");
            assert_eq!(verified.rotations, 2);
        }
    }
    let stranger = brig_audit::note::SecretKey::new(first.name(), [3; 32]).expect("key");
    let expected = Expected {
        head: None,
        key: Some(stranger.public().clone()),
    };
    let fault = verify(dir.path(), &expected).expect_err("not a key of this log");
    assert_eq!(fault.code(), "audit.key");
}

#[test]
fn an_old_key_cannot_sign_for_what_came_after_it() {
    let dir = tempfile::tempdir().expect("directory");
    let log = filled(dir.path(), Options::default(), 5);
    let stolen = fs::read_to_string(dir.path().join("key")).expect("key");
    let stolen = brig_audit::note::SecretKey::parse(&stolen).expect("key");
    log.rotate_key().expect("rotate");
    log.append(record(6)).expect("append");
    let head = log.head().expect("head");
    let forged = Head::unverified(&head).expect("head").sign(&stolen);
    let expected = |head: &str| Expected {
        head: Some(head.to_owned()),
        key: None,
    };
    verify(dir.path(), &expected(&head)).expect("control");
    let fault = verify(dir.path(), &expected(&forged)).expect_err("the old key is gone");
    assert!(
        matches!(fault.kind, VerifyErrorKind::GivenHead(_)),
        "{fault}"
    );
}

#[test]
fn a_rotation_that_was_cut_short_is_finished_or_forgotten() {
    let dir = tempfile::tempdir().expect("directory");
    let (before, after, mixed) = (
        dir.path().join("before"),
        dir.path().join("after"),
        dir.path().join("mixed"),
    );
    let log = filled(&before, Options::default(), 3);
    copy(&before, &after);
    drop(log);
    let log = Log::open(&after, Options::default()).expect("open");
    log.rotate_key().expect("rotate");
    drop(log);
    let (old, new) = (fs::read(before.join("key")), fs::read(after.join("key")));
    let (old, new) = (old.expect("key"), new.expect("key"));

    // Only the new key was made.
    copy(&before, &mixed);
    fs::write(mixed.join("key.next"), &new).expect("write");
    fs::set_permissions(mixed.join("key.next"), fs::Permissions::from_mode(0o600)).expect("mode");
    drop(filled(&mixed, Options::default(), 1));
    assert!(!mixed.join("key.next").exists());
    assert_eq!(fs::read(mixed.join("key")).expect("key"), old);
    check(&mixed).expect("good");

    // The record was written as well, then the head, then the public key.
    let steps: [&[&str]; 3] = [&[], &["head"], &["head", "key.pub"]];
    for done in steps {
        copy(&after, &mixed);
        for name in ["head", "key.pub"] {
            if !done.contains(&name) {
                fs::copy(before.join(name), mixed.join(name)).expect("copy");
            }
        }
        fs::write(mixed.join("key"), &old).expect("write");
        fs::write(mixed.join("key.next"), &new).expect("write");
        for name in ["key", "key.next"] {
            fs::set_permissions(mixed.join(name), fs::Permissions::from_mode(0o600)).expect("mode");
        }
        drop(filled(&mixed, Options::default(), 1));
        assert!(!mixed.join("key.next").exists(), "{done:?}");
        assert_eq!(fs::read(mixed.join("key")).expect("key"), new, "{done:?}");
        check(&mixed).expect("good");
    }
}

#[test]
fn a_log_that_was_moved_away_is_not_written_any_more() {
    let dir = tempfile::tempdir().expect("directory");
    let (path, away) = (dir.path().join("audit"), dir.path().join("away"));
    let log = filled(&path, Options::default(), 3);
    fs::rename(&path, &away).expect("move");
    assert!(log.append(record(9)).is_err());
    assert!(log.note(record(9)).is_err());
    fs::rename(&away, &path).expect("move");
    log.append(record(9)).expect("control");
    fs::remove_dir_all(&path).expect("remove");
    assert!(log.append(record(10)).is_err());
}

#[test]
fn a_record_that_is_too_long_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let log = Log::open(dir.path(), Options::default()).expect("open");
    let mut long = record(1);
    long.agent = "x".repeat(2 << 20);
    assert!(log.append(long.clone()).is_err());
    long.agent = "x".repeat(900 << 10);
    log.append(long).expect("control");
    log.append(record(2)).expect("append");
    drop(log);
    drop(filled(dir.path(), Options::default(), 1));
    check(dir.path()).expect("good");
}

#[test]
fn the_stored_tree_is_made_again_when_it_is_lost_or_wrong() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), small_segments(), 50));
    let nodes = dir.path().join("nodes");
    let good = fs::read(&nodes).expect("nodes");
    for damage in [Vec::new(), vec![0; good.len()], good[..40].to_vec()] {
        fs::write(&nodes, &damage).expect("write");
        assert_eq!(check(dir.path()).expect_err("wrong").code(), "audit.nodes");
        brig_audit::proof::prove(dir.path(), 7).expect("made again for this once");
        drop(Log::open(dir.path(), small_segments()).expect("open"));
        assert_eq!(fs::read(&nodes).expect("nodes"), good);
        check(dir.path()).expect("good");
    }
}

#[test]
fn a_wrong_head_keeps_the_log_from_being_opened() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), Options::default(), 5));
    let path = dir.path().join("head");
    let good = fs::read_to_string(&path).expect("head");
    for bad in [
        String::new(),
        good[..50].to_owned(),
        good.replacen('6', "5", 1),
    ] {
        assert_ne!(bad, good);
        fs::write(&path, &bad).expect("write");
        let refused = Log::open(dir.path(), Options::default()).expect_err("wrong head");
        assert_eq!(refused.code(), "audit.head", "{refused}");
    }
    fs::remove_file(&path).expect("remove");
    let refused = Log::open(dir.path(), Options::default()).expect_err("no head");
    assert!(matches!(refused, LogError::Head(_)), "{refused}");
    fs::write(&path, &good).expect("write");
    Log::open(dir.path(), Options::default()).expect("control");
}
