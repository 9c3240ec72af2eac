//! Who sandboxes with saved files run as, and who the files belong to, inside and on the disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::config::MountSpec;
use brig_sandbox::{AgentId, Backend, CheckpointName, Sandbox, Session, SessionConfig};
use brig_testing::{again_by, passes, test_name};
use rustix::process::{getegid, geteuid};

/// The owner of saved files on the disk, and the first id that one sandbox alone can have.
const SAVED: u32 = 60999;
const FIRST_OWN: u32 = 0x7000_0000;

const CHILD: &str = "BRIG_NATIVE_TEST_SAVED";

/// How saved files get into a sandbox.
#[derive(Clone, Copy, Debug)]
enum Way {
    Stacked,
    Copied,
}

impl Way {
    fn sandbox(self, state: &Path) -> Sandbox {
        let backend = match self {
            Way::Stacked => NativeBackend::new(),
            Way::Copied => NativeBackend::with_copied_layers(),
        };
        let built = Sandbox::builder(Arc::new(backend)).state_dir(state).build();
        built.unwrap()
    }
}

fn agent() -> AgentId {
    "agent".parse().unwrap()
}

fn checkpoint(name: &str) -> CheckpointName {
    name.parse().unwrap()
}

async fn create(sandbox: &Sandbox, config: SessionConfig) -> Session {
    let created = sandbox.create_session(&agent(), None, config).await;
    created.unwrap()
}

async fn shell(session: &Session, script: &str) -> String {
    let command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    let report = session.run(command).await.unwrap();
    let outcome = report.outcome;
    assert!(outcome.success(), "{script}: {outcome:?}");
    String::from_utf8(outcome.stdout.bytes).unwrap()
}

/// What the host sees the processes of a session run as.
async fn id_outside(session: &Session, state: &Path) -> u32 {
    let folder = state.join("sessions/agent").join(session.id().to_string());
    let owner = fs::read(folder.join("owner.json")).unwrap();
    let owner: serde_json::Value = serde_json::from_slice(&owner).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", owner["instance"]["pid"])).unwrap();
    let ids = |name: &str| -> BTreeSet<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let ids = line.unwrap().split_whitespace();
        ids.map(|id| id.parse().unwrap()).collect()
    };
    let uids = ids("Uid:");
    assert_eq!(uids.len(), 1, "{status}");
    if geteuid().is_root() {
        assert_eq!(ids("Gid:"), uids, "{status}");
        assert!(ids("Groups:").is_empty(), "{status}");
    }
    let uid = *uids.first().unwrap();
    // There is no other id inside.
    let map = shell(session, "cat /proc/self/uid_map").await;
    let map: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(map, ["65534", uid.to_string().as_str(), "1"]);
    uid
}

/// All owners of files below a folder.
fn owners(folder: &Path, found: &mut BTreeSet<(u32, u32)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        found.insert((meta.uid(), meta.gid()));
        if meta.is_dir() {
            owners(&entry.path(), found);
        }
    }
}

/// Nothing on the disk belongs to an id that a sandbox had for itself.
fn check_disk(state: &Path) {
    let mut found = BTreeSet::new();
    owners(state, &mut found);
    let caller = (geteuid().as_raw(), getegid().as_raw());
    match geteuid().is_root() {
        true => assert_eq!(found, BTreeSet::from([caller, (SAVED, SAVED)])),
        false => assert_eq!(found, BTreeSet::from([caller])),
    }
}

const WRITE: &str = "umask 077; mkdir -p d/e; echo 1 > d/a; echo 1 > d/e/b; echo 1 > changed
    echo 1 > removed; ln d/a linked; ln -s d/a link; echo 1 > closed; chmod 0 closed; mkdir gone";
const LOOK: &str = "find . -mindepth 1 -printf '%p %y %U:%G\\n' | sort; cat d/a d/e/b changed";

/// Every file belongs to the one user there is.
async fn check_inside(session: &Session) -> String {
    let seen = shell(session, LOOK).await;
    let entries: Vec<&str> = seen.lines().filter(|line| line.starts_with('.')).collect();
    assert!(entries.len() > 5, "{seen}");
    for entry in entries {
        assert!(entry.ends_with(" 65534:65534"), "{seen}");
    }
    seen
}

/// Whether this root has ids to give; most tests of this file are about them.
fn has_ids(test: &str) -> bool {
    let all = |map| fs::read_to_string(map).unwrap().contains(" 4294967295");
    let has = geteuid().is_root() && all("/proc/self/uid_map") && all("/proc/self/gid_map");
    if !has {
        brig_testing::skip(
            test,
            "only root of the machine gives sandboxes ids of their own",
        );
    }
    has
}

#[tokio::test]
async fn two_sessions_with_saved_files_run_as_different_ids() {
    let rooted = geteuid().is_root();
    if rooted && !has_ids("sessions with saved files run as different ids") {
        return;
    }
    for way in [Way::Stacked, Way::Copied] {
        let state = tempfile::tempdir().unwrap();
        let sandbox = way.sandbox(state.path());
        let mut sessions = Vec::new();
        for name in ["one", "two"] {
            let session = create(&sandbox, SessionConfig::default()).await;
            let write = format!("umask 077; echo {name} > file");
            shell(&session, &write).await;
            session.close().await.unwrap();
            sessions.push((name, session));
        }
        let mut ids = BTreeSet::new();
        for (name, session) in &sessions {
            assert_eq!(shell(session, "cat file").await, format!("{name}\n"));
            ids.insert(id_outside(session, state.path()).await);
        }
        if rooted {
            assert_eq!(ids.len(), 2, "{way:?}: {ids:?}");
            assert!(ids.iter().all(|id| *id >= FIRST_OWN), "{way:?}: {ids:?}");
        } else {
            assert_eq!(ids, BTreeSet::from([geteuid().as_raw()]));
        }
        // A new instance of the same session is another sandbox.
        let (_, session) = &sessions[0];
        session.close().await.unwrap();
        assert_eq!(shell(session, "cat file").await, "one\n");
        let again = id_outside(session, state.path()).await;
        assert_eq!(ids.contains(&again), !rooted, "{way:?}: {again} {ids:?}");
        check_disk(state.path());
    }
}

async fn saved_files_belong_to_the_sandbox(way: Way, read_only_root: bool) {
    let state = tempfile::tempdir().unwrap();
    let sandbox = way.sandbox(state.path());
    let config = SessionConfig {
        read_only_root,
        ..SessionConfig::default()
    };
    let session = create(&sandbox, config).await;
    shell(&session, WRITE).await;
    let first = check_inside(&session).await;
    session.save_state(&checkpoint("first")).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(check_inside(&session).await, first);
    check_disk(state.path());

    // What was saved can be changed, replaced, moved and removed, as what is new.
    let change = "echo 2 > changed; rm removed; rmdir gone; echo 2 >> d/a; chmod 600 closed
        cat closed; mv d/e moved; mkdir -p d/e; echo 2 > d/e/b; ln -sf moved link";
    assert_eq!(shell(&session, change).await, "1\n");
    let second = check_inside(&session).await;
    assert_ne!(second, first);
    session.save_state(&checkpoint("second")).await.unwrap();
    for _ in 0..2 {
        session.close().await.unwrap();
        assert_eq!(check_inside(&session).await, second);
    }
    check_disk(state.path());

    session.restore_state(&checkpoint("first")).await.unwrap();
    assert_eq!(check_inside(&session).await, first);
    let fork = session.fork(&checkpoint("second"), None).await.unwrap();
    assert_eq!(check_inside(&fork).await, second);
    shell(&fork, "echo fork > changed; rm -r moved").await;
    fork.close().await.unwrap();
    let changed = check_inside(&fork).await;
    assert!(changed.ends_with("fork\n"), "{changed}");
    assert_eq!(check_inside(&session).await, first);
    // More layers than are stacked: some are merged.
    for round in 0..10 {
        shell(&fork, &format!("echo {round} > round-{round}")).await;
        fork.close().await.unwrap();
        check_inside(&fork).await;
    }
    check_disk(state.path());
}

#[tokio::test]
async fn stacked_files_belong_to_the_sandbox() {
    saved_files_belong_to_the_sandbox(Way::Stacked, true).await;
}

#[tokio::test]
async fn stacked_files_belong_to_the_sandbox_with_a_writable_root() {
    saved_files_belong_to_the_sandbox(Way::Stacked, false).await;
}

#[tokio::test]
async fn copied_files_belong_to_the_sandbox() {
    saved_files_belong_to_the_sandbox(Way::Copied, true).await;
}

#[tokio::test]
async fn copied_files_belong_to_the_sandbox_with_a_writable_root() {
    saved_files_belong_to_the_sandbox(Way::Copied, false).await;
}

#[tokio::test]
async fn a_folder_of_the_owner_of_saved_files_is_shown_too() {
    if !has_ids("a mounted folder of the owner of saved files") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "1\n").unwrap();
    for path in [folder.path().to_owned(), folder.path().join("file")] {
        chown(path, Some(SAVED), Some(SAVED)).unwrap();
    }
    let sandbox = Way::Stacked.sandbox(state.path());
    let config = SessionConfig {
        mounts: vec![MountSpec {
            source: folder.path().to_owned(),
            target: "/mnt/data".into(),
            writable: true,
        }],
        ..SessionConfig::default()
    };
    let session = create(&sandbox, config).await;
    shell(
        &session,
        "cat /mnt/data/file; echo 2 > /mnt/data/made; echo 2 > own",
    )
    .await;
    assert!(id_outside(&session, state.path()).await >= FIRST_OWN);
    let made = folder.path().join("made").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (SAVED, SAVED));
    check_disk(state.path());
}

/// Runs a test again in a mount namespace of its own. Returns the folder of that run.
fn in_own_mounts(test: &str) -> Option<PathBuf> {
    if let Ok(path) = std::env::var(CHILD) {
        return Some(path.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation=private", "--"]);
    unshare.env(CHILD, folder.path());
    passes(again_by(unshare, test));
    None
}

/// A ramfs can't show its files under another owner.
#[tokio::test]
async fn without_idmapped_mounts_saved_files_are_used_by_their_owner() {
    let test = test_name!();
    if !has_ids(&test) {
        return;
    }
    let Some(state) = in_own_mounts(&test) else {
        return;
    };
    let mut mount = Command::new("mount");
    mount.args(["-t", "ramfs", "-o", "mode=755", "none"]);
    assert!(mount.arg(&state).status().unwrap().success());
    let report = NativeBackend::new().findings(Some(&state)).await;
    let caller = report.iter().find(|finding| finding.what == "caller");
    let caller = caller.unwrap();
    assert!(!caller.good && caller.fix.is_some(), "{caller:?}");
    assert!(caller.detail.contains("60999"), "{caller:?}");
    for way in [Way::Stacked, Way::Copied] {
        let sandbox = way.sandbox(&state);
        let session = create(&sandbox, SessionConfig::default()).await;
        // As long as there is nothing to be shown, it is not in the way.
        shell(&session, WRITE).await;
        let first = check_inside(&session).await;
        assert!(id_outside(&session, &state).await >= FIRST_OWN, "{way:?}");
        session.close().await.unwrap();
        assert_eq!(check_inside(&session).await, first);
        assert_eq!(id_outside(&session, &state).await, SAVED, "{way:?}");
        shell(&session, "echo 2 > changed; rm removed").await;
        session.close().await.unwrap();
        assert!(check_inside(&session).await.ends_with("2\n"));
        check_disk(&state);
    }
}

#[tokio::test]
async fn the_report_says_that_ids_are_given() {
    if !has_ids("the report on ids") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("not/yet");
    let report = NativeBackend::new().findings(Some(&state)).await;
    let caller = report.iter().find(|finding| finding.what == "caller");
    assert!(caller.unwrap().good, "{caller:?}");
}
