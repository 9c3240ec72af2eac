//! Nothing is lost that is not on record, and nothing is acknowledged that was lost.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brig_audit::{Event as Fact, MemoryLog, Record, RecordError, Recorder};
use tempfile::TempDir;

use super::fake::{Fake, agent, checkpoint, session, words};
use crate::{Error, Sandbox, Session, SessionConfig, SessionStatus, Sessions};

/// A log that can be full.
#[derive(Debug, Default)]
struct Log {
    records: MemoryLog,
    full: AtomicBool,
}

impl Recorder for Log {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(RecordError::new("the disk is full")),
            false => self.records.append(record),
        }
    }
}

impl Log {
    fn facts(&self) -> Vec<Fact> {
        let records = self.records.records().into_iter();
        records.map(|record| record.event).collect()
    }
}

struct Machine {
    _outer: TempDir,
    state: PathBuf,
    log: Arc<Log>,
    fake: Arc<Fake>,
    sandbox: Sandbox,
}

impl Machine {
    fn new() -> Self {
        let outer = tempfile::tempdir().expect("directory");
        let state = outer.path().join("state");
        let (log, fake) = (Arc::new(Log::default()), Arc::new(Fake::default()));
        let builder = Sandbox::builder(fake.clone()).state_dir(&state);
        let sandbox = builder.recorder(log.clone()).build().expect("sandbox");
        Self {
            _outer: outer,
            state,
            log,
            fake,
            sandbox,
        }
    }

    /// A session with a file and a checkpoint.
    async fn session(&self) -> Session {
        let (agent, id) = (agent(), Some(session("s")));
        let made = self
            .sandbox
            .create_session(&agent, id, SessionConfig::default())
            .await;
        let made = made.expect("session");
        made.run(words("write a one")).await.expect("report");
        made.save_state(&checkpoint("c")).await.expect("saved");
        made
    }

    fn path(&self) -> PathBuf {
        self.state.join("sessions/agent/s")
    }
}

#[tokio::test]
async fn nothing_is_destroyed_that_cannot_be_recorded() {
    let machine = Machine::new();
    let open = machine.session().await;
    let sessions = Sessions::open(&machine.state, machine.log.clone()).expect("state directory");
    let unopened = {
        let builder = Sandbox::builder(Arc::new(Fake::default())).state_dir(&machine.state);
        builder
            .recorder(machine.log.clone())
            .build()
            .expect("sandbox")
    };
    machine.log.full.store(true, Ordering::SeqCst);
    let (agent, id) = (agent(), session("s"));
    for refused in [
        open.destroy().await.map(|()| true),
        unopened.destroy_session(&agent, &id).await.map(|()| true),
        sessions.destroy(&agent, &id).await,
    ] {
        assert!(matches!(refused, Err(Error::Record(_))), "{refused:?}");
        assert!(machine.path().join("checkpoints/c.json").exists());
    }
    machine.log.full.store(false, Ordering::SeqCst);
    assert_eq!(open.status(), SessionStatus::Ready);
    open.run(words("echo hello")).await.expect("it goes on");
    open.restore_state(&checkpoint("c"))
        .await
        .expect("restored");
    assert!(sessions.destroy(&agent, &id).await.expect("destroyed"));
    assert!(!machine.path().exists(), "control");
    let facts = machine.log.facts();
    let last: Vec<&Fact> = facts.iter().rev().take(2).collect();
    assert!(
        matches!(
            last[..],
            [Fact::SessionDestroyed, Fact::SessionDestroyRequested]
        ),
        "{last:?}"
    );
    assert!(!sessions.destroy(&agent, &id).await.expect("nothing there"));
    assert_eq!(machine.log.facts().len(), facts.len());
}

#[tokio::test]
async fn what_ran_and_was_not_saved_is_reported_as_both() {
    let machine = Machine::new();
    let open = machine.session().await;
    machine.fake.refuse_to_save.store(true, Ordering::SeqCst);
    let error = open.run(words("write a two")).await.expect_err("not saved");
    assert_eq!(error.code(), "session.not-saved");
    let Error::Interrupted(known) = &error else {
        panic!("{error:?}");
    };
    assert!(known.report.outcome.success(), "{known:?}");
    assert!(known.report.receipt.is_some());
    let execution = known.report.execution_id.to_string();
    let noted = |record: &Record| {
        matches!(record.event, Fact::FilesNotSaved { .. })
            && record.execution.as_ref() == Some(&execution)
    };
    assert!(machine.log.records.records().iter().any(noted));
    drop(open);
    // The files are those of before.
    machine.fake.refuse_to_save.store(false, Ordering::SeqCst);
    let saved = machine.path();
    let head = fs::read_dir(saved).expect("session").flatten();
    let head = head.map(|entry| entry.path()).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("head-"))
    });
    let text = fs::read_to_string(head.expect("a head").join("a"));
    assert_eq!(text.ok().as_deref(), Some("one"));
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_keeps_what_is_known() {
    let machine = Machine::new();
    let open = machine.session().await;
    let running = open.start(crate::Request::command(words("sleep"))).await;
    let running = running.expect("running");
    machine.log.full.store(true, Ordering::SeqCst);
    running.cancel();
    let error = running.wait().await.expect_err("no record");
    let Error::Interrupted(known) = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(known.error, Error::Record(_)), "{error:?}");
    assert_eq!(known.report.receipt, None);
}

#[tokio::test]
async fn an_owner_in_another_pid_namespace_is_not_taken_for_dead() {
    let machine = Machine::new();
    let open = machine.session().await;
    let owner = machine.path().join("owner.json");
    let text = fs::read_to_string(&owner).expect("owner");
    let mut object: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert!(object["namespace"].is_string(), "{object}");
    object["namespace"] = "another".into();
    fs::write(&owner, object.to_string()).expect("written");
    let sessions = Sessions::open(&machine.state, machine.log.clone()).expect("state directory");
    let (agent, id) = (agent(), session("s"));
    let refused = sessions.destroy(&agent, &id).await.expect_err("it is open");
    assert_eq!(refused.code(), "session.busy");
    open.run(words("echo hello")).await.expect("it goes on");
    // When nobody has it open, no process id is asked.
    open.close().await.expect("closed");
    drop(open);
    fs::write(&owner, object.to_string()).expect("written");
    assert!(sessions.destroy(&agent, &id).await.expect("destroyed"));
}

#[tokio::test]
async fn an_execution_whose_session_went_away_does_not_say_that_it_was_saved() {
    let machine = Machine::new();
    let open = machine.session().await;
    let aside = machine.state.join("aside");
    fs::rename(machine.path(), &aside).expect("moved");
    let error = open.run(words("echo hello")).await;
    assert!(error.is_err(), "{error:?}");
    fs::rename(aside, machine.path()).expect("moved back");
    drop(open);
    let sandbox = Sandbox::builder(Arc::new(Fake::default())).state_dir(&machine.state);
    let sandbox = sandbox.build().expect("sandbox");
    let again = sandbox.open_session(&agent(), &session("s")).await;
    let again = again.expect("it is whole");
    again.run(words("echo hello")).await.expect("control");
}

#[tokio::test]
async fn a_destroy_that_was_refused_can_be_tried_again() {
    let machine = Machine::new();
    let open = machine.session().await;
    // Its directory can't be renamed: there is no trash.
    let trash = machine.state.join("trash");
    fs::remove_dir(&trash).expect("it is empty");
    fs::write(&trash, "").expect("a file");
    for _ in 0..2 {
        open.destroy().await.expect_err("it is still there");
        assert!(machine.path().join("session.json").exists());
    }
    let failed = |fact: &&Fact| matches!(fact, Fact::OperationFailed { .. });
    assert_eq!(machine.log.facts().iter().filter(failed).count(), 2);
    fs::remove_file(&trash).expect("removed");
    fs::create_dir(&trash).expect("made");
    open.run(words("echo hello")).await.expect("it goes on");
    open.destroy().await.expect("destroyed");
    assert!(!machine.path().exists());
}
