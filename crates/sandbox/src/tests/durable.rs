//! Sessions that outlive their process. A second `Sandbox` on the same folder stands for a second
//! process: locks between processes hold between the two as well.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tempfile::TempDir;

use super::fake::{Fake, agent, session, words};
use crate::shared::lock;
use crate::{Error, KillReason, Limit, Request, Sandbox, Session, SessionConfig, SessionStatus};

struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("folder"),
        }
    }

    fn process(&self) -> (Arc<Fake>, Sandbox) {
        self.process_on(Fake::default())
    }

    /// One whose instances start from a copy of their files.
    fn copying_process(&self) -> (Arc<Fake>, Sandbox) {
        self.process_on(Fake {
            copies: true,
            ..Fake::default()
        })
    }

    fn process_on(&self, fake: Fake) -> (Arc<Fake>, Sandbox) {
        let fake = Arc::new(fake);
        let sandbox = Sandbox::builder(fake.clone())
            .state_dir(self.state())
            .build()
            .expect("sandbox");
        (fake, sandbox)
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn entries(&self, folder: &str) -> usize {
        fs::read_dir(self.folder.path().join("state").join(folder)).map_or(0, |entries| {
            entries
                .flatten()
                .filter(|e| e.file_name() != ".lock")
                .count()
        })
    }
}

async fn create(sandbox: &Sandbox, id: &str) -> Session {
    let created = sandbox
        .create_session(&agent(), Some(session(id)), Default::default())
        .await;
    created.expect("session")
}

async fn read(session: &Session, name: &str) -> Option<String> {
    let report = session
        .run(words(&format!("read {name}")))
        .await
        .expect("report");
    let outcome = report.outcome;
    outcome
        .success()
        .then(|| String::from_utf8(outcome.stdout.bytes).expect("text"))
}

#[tokio::test]
async fn files_outlive_the_process() {
    let machine = Machine::new();
    let (_, first) = machine.process();
    let session_1 = create(&first, "s").await;
    session_1.run(words("write a one")).await.expect("report");
    session_1.run(words("write b two")).await.expect("report");
    drop((session_1, first));

    let (_, second) = machine.process();
    assert_eq!(
        second.session_status(&agent(), &session("s")),
        SessionStatus::Ready
    );
    let session_2 = second
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    assert_eq!(read(&session_2, "a").await.as_deref(), Some("one"));
    session_2.run(words("rm a")).await.expect("report");
    session_2
        .upload("c", 0o644, &b"three"[..])
        .await
        .expect("upload");
    drop((session_2, second));

    let (_, third) = machine.process();
    let session_3 = third
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    assert_eq!(
        read(&session_3, "a").await,
        None,
        "what was removed stays removed"
    );
    assert_eq!(read(&session_3, "b").await.as_deref(), Some("two"));
    assert_eq!(read(&session_3, "c").await.as_deref(), Some("three"));
    let info = &third.list_sessions().expect("list")[0];
    assert_eq!((info.backend.as_str(), info.layers), ("fake", 2));
    session_3.destroy().await.expect("destroyed");
    for folder in ["sessions", "layers", "references", "staging", "trash"] {
        assert_eq!(machine.entries(folder), 0, "{folder}");
    }
}

#[tokio::test]
async fn a_session_moves_between_stacked_and_copied_files() {
    let machine = Machine::new();
    let (_, sandbox) = machine.process();
    let created = create(&sandbox, "s").await;
    created.run(words("write a 0")).await.expect("report");
    created.run(words("write kept 0")).await.expect("report");
    drop((created, sandbox));
    for round in 1..7 {
        // Twice each: with and without layers from before.
        let (fake, sandbox) = match round % 4 {
            0 | 1 => machine.copying_process(),
            _ => machine.process(),
        };
        let opened = sandbox.open_session(&agent(), &session("s")).await;
        let opened = opened.expect("session");
        let before = (round - 1).to_string();
        assert_eq!(read(&opened, "a").await, Some(before.clone()));
        assert_eq!(read(&opened, "kept").await.as_deref(), Some("0"));
        assert_eq!(read(&opened, &format!("only-{}", round - 2)).await, None);
        for command in [
            format!("write a {round}"),
            format!("write only-{round} x"),
            format!("rm only-{before}"),
        ] {
            opened.run(words(&command)).await.expect("report");
        }
        if fake.copies {
            assert_eq!(sandbox.list_sessions().expect("list")[0].layers, 0);
            assert_eq!(machine.entries("layers"), 0, "nobody needs them any more");
        }
        opened.run(words("die")).await.expect_err("lost");
        assert_eq!(read(&opened, "a").await, Some(round.to_string()));
        assert_eq!(read(&opened, &format!("only-{before}")).await, None);
    }
    let (_, sandbox) = machine.copying_process();
    let opened = sandbox.open_session(&agent(), &session("s")).await;
    opened.expect("session").destroy().await.expect("destroyed");
    for folder in ["sessions", "layers", "references", "staging", "trash"] {
        assert_eq!(machine.entries(folder), 0, "{folder}");
    }
}

#[tokio::test]
async fn a_lost_instance_is_replaced_with_the_files_as_they_were_last_saved() {
    let machine = Machine::new();
    let (fake, sandbox) = machine.process();
    let session = create(&sandbox, "s").await;
    session.run(words("write a one")).await.expect("report");
    session.run(words("die")).await.expect_err("lost");
    assert_eq!(read(&session, "a").await.as_deref(), Some("one"));
    assert_eq!(fake.started.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn many_openings_are_merged_into_few_layers() {
    let machine = Machine::new();
    drop(create(&machine.process().1, "s").await);
    for round in 0..12 {
        let (_, sandbox) = machine.process();
        let session = sandbox
            .open_session(&agent(), &session("s"))
            .await
            .expect("session");
        session
            .run(words(&format!("write f{round} {round}")))
            .await
            .expect("report");
        session
            .run(words(&format!("rm f{}", round - 2)))
            .await
            .expect("report");
    }
    let (fake, sandbox) = machine.process();
    let session = sandbox
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    assert_eq!(read(&session, "f11").await.as_deref(), Some("11"));
    assert_eq!(read(&session, "f10").await.as_deref(), Some("10"));
    assert_eq!(read(&session, "f9").await, None);
    assert!(lock(&fake.plans)[0].initial().directories().len() <= 8);
}

/// Everything below, each file once however many names it has.
fn on_disk(folder: &Path) -> u64 {
    fn below(folder: &Path, counted: &mut HashSet<u64>) -> u64 {
        let entries = fs::read_dir(folder).expect("folder").flatten();
        let bytes = entries.map(|entry| {
            let found = entry.metadata().expect("meta");
            match found.is_dir() {
                true => below(&entry.path(), counted),
                false if counted.insert(found.ino()) => found.blocks() * 512,
                false => 0,
            }
        });
        bytes.sum()
    }
    below(folder, &mut HashSet::new())
}

#[tokio::test]
async fn what_was_replaced_does_not_stay_on_the_disk() {
    let machine = Machine::new();
    let (_, sandbox) = machine.process();
    let mut config = SessionConfig::default();
    let limit = 16 << 20;
    config.limits.disk_bytes = Limit::asked(limit);
    let created = sandbox
        .create_session(&agent(), Some(session("s")), config)
        .await;
    drop((created.expect("session"), sandbox));
    let (mut most, mut least) = (0, u64::MAX);
    for round in 0..24_u8 {
        let (fake, sandbox) = machine.process();
        let opened = sandbox.open_session(&agent(), &session("s")).await;
        let opened = opened.expect("session");
        let content = vec![round; 3 << 20];
        let done = opened.upload("big", 0o644, content.as_slice()).await;
        done.expect("upload");
        least = least.min(lock(&fake.plans)[0].limits().disk_bytes.value);
        most = most.max(on_disk(&machine.state()));
        if round == 20 {
            opened
                .save_state(&"old".parse().expect("name"))
                .await
                .expect("saved");
        }
    }
    assert!(most <= limit, "{most} bytes on disk");
    // What is there takes three of sixteen, and what is hidden an eighth of what is left at most.
    assert!(least >= 11 << 20, "only {least} bytes could be written");

    let (_, sandbox) = machine.process();
    let opened = sandbox.open_session(&agent(), &session("s")).await;
    let opened = opened.expect("session");
    let mut bytes = Vec::new();
    opened.download("big", &mut bytes).await.expect("download");
    assert!(bytes == vec![23; 3 << 20], "the last one counts");
    opened
        .restore_state(&"old".parse().expect("name"))
        .await
        .expect("restored");
    bytes.clear();
    opened.download("big", &mut bytes).await.expect("download");
    assert!(bytes == vec![20; 3 << 20], "what a checkpoint needs stays");
    let left = on_disk(&machine.state().join("layers"));
    assert!(left <= 6 << 20, "what nobody needs is gone: {left}");
}

#[tokio::test]
async fn a_full_session_grows_no_further() {
    let machine = Machine::new();
    let (_, sandbox) = machine.process();
    let mut config = SessionConfig::default();
    config.limits.disk_bytes = Limit::asked(1 << 20);
    let created = sandbox
        .create_session(&agent(), Some(session("s")), config)
        .await;
    drop((created.expect("session"), sandbox));
    let mut refused = None;
    // Each new instance may write a little, and does.
    for round in 0..40_u8 {
        let (_, sandbox) = machine.process();
        let opened = sandbox.open_session(&agent(), &session("s")).await;
        let content = vec![round; 1 << 20];
        let path = format!("file{round}");
        let opened = opened.expect("session");
        let done = opened.upload(&path, 0o644, content.as_slice()).await;
        if let Err(error) = done {
            refused = Some((round, error.to_string()));
            break;
        }
    }
    let (round, problem) = refused.expect("it grew and grew");
    assert!(
        round >= 32 && problem.contains("its files take"),
        "{round}: {problem}"
    );
}

#[tokio::test]
async fn the_disk_limit_counts_what_is_there_already() {
    let machine = Machine::new();
    let (_, sandbox) = machine.process();
    let mut config = SessionConfig::default();
    config.limits.disk_bytes = Limit::asked(16 << 20);
    let created = sandbox
        .create_session(&agent(), Some(session("s")), config)
        .await;
    let created = created.expect("session");
    let content = vec![1; 5 << 20];
    created
        .upload("big", 0o644, content.as_slice())
        .await
        .expect("upload");
    drop((created, sandbox));
    let (fake, sandbox) = machine.process();
    let opened = sandbox
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    read(&opened, "nothing").await;
    let disk = lock(&fake.plans)[0].limits().disk_bytes;
    assert!(disk.asked);
    assert!(disk.value <= 11 << 20 && disk.value > 10 << 20, "{disk:?}");
    drop((opened, sandbox));

    let (fake, sandbox) = machine.copying_process();
    let opened = sandbox.open_session(&agent(), &session("s")).await;
    read(&opened.expect("session"), "nothing").await;
    let disk = lock(&fake.plans)[0].limits().disk_bytes;
    assert_eq!(disk.value, 16 << 20, "the copy counts on the disk itself");
}

#[tokio::test(start_paused = true)]
async fn one_process_at_a_time() {
    let machine = Machine::new();
    let (_, first) = machine.process();
    let session_1 = create(&first, "s").await;
    let (_, second) = machine.process();
    let busy = second
        .open_session(&agent(), &session("s"))
        .await
        .expect_err("busy");
    let Error::SessionBusy { problem, .. } = &busy else {
        panic!("{busy}")
    };
    assert!(
        problem.contains(&std::process::id().to_string()),
        "{problem}"
    );
    let taken = second
        .create_session(&agent(), Some(session("s")), Default::default())
        .await;
    assert!(matches!(taken, Err(Error::SessionExists { .. })));

    let waiting = tokio::spawn(async move { second.open_session(&agent(), &session("s")).await });
    tokio::task::yield_now().await;
    session_1.close().await.expect("closed");
    waiting.await.expect("task").expect("it was waited for");
}

#[tokio::test]
async fn a_closed_session_can_be_used_again() {
    let machine = Machine::new();
    let (fake, sandbox) = machine.process();
    let session_1 = create(&sandbox, "s").await;
    session_1.run(words("write a one")).await.expect("report");
    session_1.close().await.expect("closed");
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    assert_eq!(session_1.status(), SessionStatus::Ready);
    assert_eq!(read(&session_1, "a").await.as_deref(), Some("one"));

    let temporary = Sandbox::builder(fake.clone()).build().expect("sandbox");
    let session_2 = create(&temporary, "s").await;
    session_2.run(words("write a two")).await.expect("report");
    session_2.close().await.expect("closed");
    assert_eq!(
        read(&session_2, "a").await.as_deref(),
        Some("two"),
        "also without a folder"
    );
}

#[tokio::test]
async fn another_process_sees_that_something_runs() {
    let machine = Machine::new();
    let (_, first) = machine.process();
    let session_1 = create(&first, "s").await;
    let (_, second) = machine.process();
    let status = || second.session_status(&agent(), &session("s"));
    assert_eq!(status(), SessionStatus::Ready);
    let running = session_1
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    assert_eq!(status(), SessionStatus::Executing);
    running.cancel();
    running.wait().await.expect("report");
    assert_eq!(status(), SessionStatus::Ready);
}

#[tokio::test]
async fn destroy_from_another_process_wins() {
    let machine = Machine::new();
    let (fake, first) = machine.process();
    let session_1 = create(&first, "s").await;
    let running = session_1
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    let (_, second) = machine.process();
    second
        .destroy_session(&agent(), &session("s"))
        .await
        .expect("destroyed");
    assert_eq!(
        second.session_status(&agent(), &session("s")),
        SessionStatus::Destroyed
    );
    // This backend has no process that could be ended from outside; its owner notices.
    running.cancel();
    running.wait().await.expect("report");
    let after = session_1.run(words("echo hello")).await.expect_err("gone");
    assert!(matches!(after, Error::NoSession { .. }), "{after}");
    assert_eq!(session_1.status(), SessionStatus::Destroyed);
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    assert_eq!(machine.entries("sessions"), 0);

    let again = create(&second, "s").await;
    session_1.destroy().await.expect("gone already");
    again
        .run(words("echo hello"))
        .await
        .expect("the new one of that name is untouched");
}

#[tokio::test]
async fn an_instance_lost_to_a_destroy_elsewhere_was_destroyed() {
    let machine = Machine::new();
    let (_, first) = machine.process();
    let session_1 = create(&first, "s").await;
    let running = session_1
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    let (_, second) = machine.process();
    second
        .destroy_session(&agent(), &session("s"))
        .await
        .expect("destroyed");
    session_1.run(words("die")).await.expect_err("gone");
    let report = running.wait().await.expect("report");
    let outcome = report.outcome;
    assert_eq!(outcome.killed, Some(KillReason::Destroyed));
}

#[tokio::test]
async fn what_a_crash_left_is_swept() {
    let machine = Machine::new();
    let (_, sandbox) = machine.process();
    let session_1 = create(&sandbox, "s").await;
    session_1.run(words("write a one")).await.expect("report");
    drop((session_1, sandbox));
    let state = machine.folder.path().join("state");
    let home = state.join("sessions/agent/s");
    fs::create_dir_all(state.join("trash/x/y")).expect("folder");
    fs::create_dir_all(state.join("staging/x")).expect("folder");
    fs::write(state.join("staging/x/lock"), "").expect("file");
    fs::create_dir_all(home.join("head-7/half")).expect("folder");
    fs::create_dir_all(home.join("head-0.part")).expect("folder");
    fs::create_dir_all(state.join("layers/.half")).expect("folder");
    fs::write(home.join("session.new"), "half").expect("file");

    let (_, sandbox) = machine.process();
    assert_eq!(
        (machine.entries("trash"), machine.entries("staging")),
        (0, 0)
    );
    let session_2 = sandbox
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    assert_eq!(read(&session_2, "a").await.as_deref(), Some("one"));
    for left in ["head-7", "head-0.part"] {
        assert!(!home.join(left).exists(), "{left}");
    }
    session_2.destroy().await.expect("destroyed");
    assert_eq!(machine.entries("layers"), 0);
}

#[tokio::test]
async fn a_session_that_does_not_start_leaves_no_folder() {
    let machine = Machine::new();
    let (fake, sandbox) = machine.process();
    fake.refuse_to_start.store(true, Ordering::SeqCst);
    let failed = sandbox
        .create_session(&agent(), Some(session("s")), Default::default())
        .await;
    assert!(failed.is_err());
    assert_eq!(
        (machine.entries("sessions"), machine.entries("trash")),
        (0, 0)
    );

    fake.refuse_to_start.store(false, Ordering::SeqCst);
    let made = create(&sandbox, "s").await;
    made.close().await.expect("closed");
    fake.refuse_to_start.store(true, Ordering::SeqCst);
    made.run(words("echo hello"))
        .await
        .expect_err("told to fail");
    assert_eq!(made.status(), SessionStatus::Failed);
    fake.refuse_to_start.store(false, Ordering::SeqCst);
    made.run(words("echo hello"))
        .await
        .expect("the next one tries again");
    assert_eq!(made.status(), SessionStatus::Ready);
}
