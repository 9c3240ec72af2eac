//! A caller who stops waiting while the instance is being created leaves a complete record.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brig_audit::receipt::Receipt;
use brig_audit::{Event as Fact, MemoryLog, Verdict};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::fake::{Fake, agent, session, words};
use crate::shared::lock;
use crate::{ExecutionHandle, Request, Result, Sandbox, SessionConfig};

struct World {
    fake: Arc<Fake>,
    log: Arc<MemoryLog>,
    sandbox: Sandbox,
    _state: TempDir,
}

fn world() -> World {
    let state = tempfile::tempdir().expect("directory");
    let (fake, log) = (Arc::new(Fake::default()), Arc::new(MemoryLog::default()));
    let sandbox = Sandbox::builder(fake.clone())
        .state_dir(state.path())
        .recorder(log.clone())
        .build();
    World {
        fake,
        log,
        sandbox: sandbox.expect("sandbox"),
        _state: state,
    }
}

impl World {
    /// Drops the start as soon as the backend creates the instance.
    async fn abandon(&self, start: impl Future<Output = Result<ExecutionHandle>>) {
        *lock(&self.fake.gate) = Some(Arc::new(Notify::new()));
        let creating = async {
            let begun = Instant::now();
            while self.fake.waiting.load(Ordering::SeqCst) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "never created");
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            _ = start => panic!("it must not start"),
            () = creating => {}
        }
        *lock(&self.fake.gate) = None;
    }

    fn facts(&self) -> Vec<Fact> {
        let records = self.log.records().into_iter();
        records.map(|record| record.event).collect()
    }
}

fn assert_cancelled(receipt: &Receipt) {
    assert_eq!(receipt.decision, Verdict::Cancelled);
    assert_eq!(receipt.code, "run.cancelled");
    assert_eq!(receipt.kill_reason.as_deref(), Some("cancelled"));
    assert_eq!((receipt.exit_code, receipt.duration_us), (None, 0));
}

#[tokio::test]
async fn a_single_run_that_is_abandoned_ends_on_record() {
    let world = world();
    let request = Request::command(["echo", "x"]);
    let agent = agent();
    let start = (world.sandbox).start_once(&agent, SessionConfig::default(), request);
    world.abandon(start).await;
    let facts = world.facts();
    let [
        Fact::SessionCreated { .. },
        Fact::Decided { allowed: true, .. },
        Fact::ExecutionStarted { .. },
        Fact::ExecutionFinished {
            exit_code: None,
            kill_reason: Some(reason),
        },
        Fact::Receipt(receipt),
        Fact::SessionDestroyed,
    ] = &facts[..]
    else {
        panic!("{facts:?}");
    };
    assert_eq!(reason, "cancelled");
    assert_cancelled(receipt);
    assert_eq!(world.fake.alive.load(Ordering::SeqCst), 0);
    assert_eq!(world.fake.ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_abandoned_execution_ends_on_record_and_its_session_lives_on() {
    let world = world();
    let agent = agent();
    let created = (world.sandbox).create_session(&agent, Some(session("s")), Default::default());
    let session = created.await.expect("session");
    // The next execution starts a new instance.
    session.close().await.expect("closed");
    let before = world.facts().len();
    world
        .abandon(session.start(Request::command(["echo", "x"])))
        .await;
    let facts = world.facts();
    let [
        Fact::Decided { allowed: true, .. },
        Fact::ExecutionStarted { .. },
        Fact::ExecutionFinished {
            exit_code: None, ..
        },
        Fact::Receipt(receipt),
    ] = &facts[before..]
    else {
        panic!("{facts:?}");
    };
    assert_cancelled(receipt);
    // One record of the end for each: the next execution adds its own.
    let report = session.run(words("echo again")).await.expect("report");
    assert!(report.outcome.success());
    let receipts = world.facts().into_iter();
    let receipts = receipts.filter(|fact| matches!(fact, Fact::Receipt(_)));
    assert_eq!(receipts.count(), 2);
}

#[tokio::test]
async fn a_start_that_fails_is_recorded_once() {
    let world = world();
    world.fake.refuse_to_start.store(true, Ordering::SeqCst);
    let request = Request::command(["echo", "x"]);
    let agent = agent();
    let start = (world.sandbox).start_once(&agent, SessionConfig::default(), request);
    start.await.expect_err("refused");
    let facts = world.facts();
    let failed = |fact: &Fact| matches!(fact, Fact::ExecutionFailed { .. });
    let receipt = |fact: &Fact| matches!(fact, Fact::Receipt(_));
    assert_eq!(facts.iter().filter(|fact| failed(fact)).count(), 1);
    assert_eq!(facts.iter().filter(|fact| receipt(fact)).count(), 1);
    assert!(matches!(facts.last(), Some(Fact::SessionDestroyed)));
}
