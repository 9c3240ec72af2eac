//! Where nothing can be written, nothing is acknowledged: full, read-only, out of reach.
//!
//! Each case runs in a process of its own, in a mount namespace with a small file system.

use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use brig_audit::{Log, Options, Recorder};
use brig_testing::{again, again_by, passes, test_name};

/// Without it `mount` repeats the options it finds, and ids among them that the namespace of an
/// ordinary user does not have.
const KEEP_NOTHING: &str = "--options-mode=ignore";

const CHILD: &str = "BRIG_AUDIT_TEST_REFUSAL";

fn ended(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.expect("start").success(), "{program} {arguments:?}");
}

/// Runs a test again, alone on a file system of `size`. Says whether this is that run.
fn on_small_disk(test: &str, size: &str) -> Option<PathBuf> {
    if let Ok(path) = std::env::var(CHILD) {
        let mount = [
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=755"),
            "none",
            &path,
        ];
        ended("mount", &mount);
        return Some(path.into());
    }
    let dir = tempfile::tempdir().expect("directory");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "--"]);
    unshare.env(CHILD, dir.path());
    passes(again_by(unshare, test));
    None
}

#[test]
fn a_full_disk_refuses_and_leaves_the_log_whole() {
    let Some(disk) = on_small_disk(&test_name!(), "256k") else {
        return;
    };
    let path = disk.join("audit");
    let log = Log::open(&path, Options::default()).expect("open");
    let mut kept: u64 = 0;
    let refusal = loop {
        match log.append(record(kept)) {
            Ok(()) => kept += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(kept > 50, "{kept} records");
    assert!(refusal.contains("No space left"), "{refusal}");
    for _ in 0..3 {
        assert!(log.append(record(kept)).is_err());
        assert!(log.note(record(kept)).is_err());
        assert!(log.begin(vec![record(kept)]).wait().is_err());
        assert!(log.conclude(vec![record(kept)]).wait().is_err());
    }
    let verified = check(&path).expect("good");
    assert_eq!((verified.records, verified.unfinished), (kept + 1, 0));

    // A new process finds the same.
    drop(log);
    let log = Log::open(&path, Options::default()).expect("open");
    assert!(log.append(record(kept)).is_err());
    ended(
        "mount",
        &[
            KEEP_NOTHING,
            "-o",
            "remount,size=1m",
            disk.to_str().expect("path"),
        ],
    );
    log.append(record(kept))
        .expect("control: there is room again");
    let expected: Vec<String> = (0..=kept).map(|n| format!("e{n}")).collect();
    assert_eq!(executions(&path), expected);
    check(&path).expect("good");
}

#[test]
fn a_disk_that_cannot_hold_a_log_is_refused() {
    let Some(disk) = on_small_disk(&test_name!(), "4k") else {
        return;
    };
    let refused = Log::open(disk.join("audit"), Options::default()).expect_err("no room");
    assert_eq!(refused.code(), "audit.io", "{refused}");
}

#[test]
fn a_read_only_log_is_refused_and_can_be_read() {
    let Some(disk) = on_small_disk(&test_name!(), "1m") else {
        return;
    };
    let path = disk.join("audit");
    let log = filled(&path, Options::default(), 3);
    drop(log);
    ended(
        "mount",
        &[
            KEEP_NOTHING,
            "-o",
            "remount,ro",
            disk.to_str().expect("path"),
        ],
    );
    let refused = Log::open(&path, Options::default()).expect_err("read-only");
    assert_eq!(refused.code(), "audit.io", "{refused}");
    assert_eq!(check(&path).expect("good").records, 4);
    brig_audit::proof::prove(&path, 2).expect("proof");
    ended(
        "mount",
        &[
            KEEP_NOTHING,
            "-o",
            "remount,rw",
            disk.to_str().expect("path"),
        ],
    );
    drop(filled(&path, Options::default(), 1));
}

#[test]
fn a_log_that_may_no_longer_be_written_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;

    if let Ok(path) = std::env::var(CHILD) {
        let refused = Log::open(&path, Options::default()).expect_err("no permission");
        assert_eq!(refused.code(), "audit.io", "{refused}");
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("audit");
    drop(filled(&path, Options::default(), 3));
    let mut child = again(&test_name!());
    child.env(CHILD, &path);
    if rustix::process::geteuid().is_root() {
        // Root may write everything, so somebody else asks.
        for directory in [dir.path(), &path] {
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
                .expect("mode");
        }
        chown(dir.path(), Some(65534), None).expect("owner");
        child.uid(65534);
    } else {
        let lock = path.join("lock");
        std::fs::set_permissions(lock, std::fs::Permissions::from_mode(0o000)).expect("mode");
    }
    passes(child);
}
