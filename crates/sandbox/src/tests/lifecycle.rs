use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brig_audit::{Event as Fact, MemoryLog};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::fake::{Fake, agent, session, words};
use crate::shared::lock;
use crate::{
    Error, Event, ExecutionStatus, KillReason, Language, Report, Request, Sandbox, Session,
    SessionConfig, SessionStatus,
};

fn sandbox() -> (Arc<Fake>, Sandbox) {
    let fake = Arc::new(Fake::default());
    let sandbox = Sandbox::builder(fake.clone()).build().expect("sandbox");
    (fake, sandbox)
}

async fn create(sandbox: &Sandbox, id: &str) -> Session {
    let created = sandbox
        .create_session(&agent(), Some(session(id)), SessionConfig::default())
        .await;
    created.expect("session")
}

fn killed(report: &Report) -> Option<&KillReason> {
    report.outcome.killed.as_ref()
}

/// Waits, but not forever.
async fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_execution_is_answered_with_what_it_did() {
    let (_, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    assert_eq!(session.status(), SessionStatus::Ready);
    let report = session.run(words("echo hello")).await.expect("report");
    assert_eq!(report.status(), ExecutionStatus::Completed);
    assert_eq!(report.outcome.stdout.bytes, b"hello\n");
    let report = session.run(words("exit 3")).await.expect("report");
    assert_eq!(report.status(), ExecutionStatus::Failed);
    assert_eq!(report.outcome.exit_code, 3);
    let report = session
        .execute_code(Language::Python, "print(1)")
        .await
        .expect("report");
    assert_eq!(report.outcome.stdout.bytes, b"print(1)");
    assert_eq!(session.executions().len(), 3);
}

#[tokio::test]
async fn a_finished_execution_can_be_looked_up() {
    let (_, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let report = session.run(words("echo hello")).await.expect("report");
    let info = session.execution(&report.execution_id).expect("known");
    assert_eq!(info.status, ExecutionStatus::Completed);
    assert_eq!(
        info.report.expect("report").execution_id,
        report.execution_id
    );
    assert!(
        !session.cancel(&report.execution_id),
        "it has ended already"
    );
    let unknown = "unknown".parse().expect("name");
    assert!(matches!(
        session.execution(&unknown),
        Err(Error::NoExecution(_))
    ));
    let failed = session
        .run(words("no-such-program"))
        .await
        .expect_err("not found");
    assert!(matches!(failed, Error::CannotRun { exit_code: 127, .. }));
    let failed = session
        .executions()
        .into_iter()
        .find(|info| info.error.is_some());
    assert_eq!(failed.expect("kept").status, ExecutionStatus::Failed);
}

#[tokio::test]
async fn the_deadline_ends_it() {
    let (fake, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let mut request = Request::command(["sleep"]);
    request.timeout = Some(Duration::from_millis(50));
    let begun = Instant::now();
    let report = session
        .start(request)
        .await
        .expect("running")
        .wait()
        .await
        .expect("report");
    assert_eq!(killed(&report), Some(&KillReason::Timeout { limit_ms: 50 }));
    assert_eq!(report.status(), ExecutionStatus::Failed);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(fake.started.load(Ordering::SeqCst), 1);
    assert_eq!(fake.ran.load(Ordering::SeqCst), 1, "it ran once");
    session
        .run(words("echo again"))
        .await
        .expect("the session lives on");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_obey_loses_its_instance() {
    let (fake, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let running = session
        .start(Request::command(["deaf"]))
        .await
        .expect("running");
    sleep(Duration::from_millis(10)).await;
    running.cancel();
    let cancelled = tokio::time::Instant::now();
    let report = running.wait().await.expect("report");
    let grace = cancelled.elapsed();
    assert!((10..11).contains(&grace.as_secs()), "{grace:?}");
    assert_eq!(killed(&report), Some(&KillReason::Cancelled));
    assert_eq!(report.status(), ExecutionStatus::Cancelled);
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    let lost = session
        .run(words("echo hello"))
        .await
        .expect_err("its files are gone");
    assert!(matches!(lost, Error::InstanceLost(_)));
    assert_eq!(session.status(), SessionStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_broken_limit_ends_it_and_if_need_be_its_instance() {
    let (fake, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let reason = KillReason::Processes { limit: 1 };
    for (command, left) in [("greedy", 1), ("deaf-greedy", 0)] {
        let report = session.run(words(command)).await.expect("report");
        assert_eq!(killed(&report), Some(&reason), "{command}");
        assert_eq!(fake.alive.load(Ordering::SeqCst), left, "{command}");
    }
}

#[tokio::test]
async fn cancel_and_drop_end_it() {
    let (_, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let running = session
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    let id = running.id().clone();
    assert_eq!(
        session.execution(&id).expect("known").status,
        ExecutionStatus::Running
    );
    assert_eq!(session.status(), SessionStatus::Executing);
    assert!(session.cancel(&id));
    assert_eq!(
        running.wait().await.expect("report").status(),
        ExecutionStatus::Cancelled
    );
    assert_eq!(session.status(), SessionStatus::Ready);

    let running = session
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    let id = running.id().clone();
    drop(running);
    until("cancelled", || {
        session.execution(&id).expect("known").status == ExecutionStatus::Cancelled
    })
    .await;

    let running = session
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    let id = running.detach();
    sleep(Duration::from_millis(20)).await;
    assert_eq!(
        session.execution(&id).expect("known").status,
        ExecutionStatus::Running
    );
    assert!(session.cancel(&id));
}

#[tokio::test]
async fn executions_run_side_by_side_and_destroy_wins() {
    let (fake, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(
            session
                .start(Request::command(["sleep"]))
                .await
                .expect("running"),
        );
    }
    session.run(words("echo beside")).await.expect("report");
    let (first, second) = tokio::join!(session.destroy(), session.destroy());
    first.and(second).expect("destroyed");
    for running in all {
        let report = running.wait().await.expect("report");
        assert_eq!(killed(&report), Some(&KillReason::Destroyed));
    }
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    assert_eq!(session.status(), SessionStatus::Destroyed);
    let after = session.run(words("echo hello")).await.expect_err("gone");
    assert!(matches!(after, Error::NoSession { .. }));
}

#[tokio::test]
async fn destroy_wins_over_what_does_not_obey() {
    let (fake, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let running = session
        .start(Request::command(["deaf"]))
        .await
        .expect("running");
    session.destroy().await.expect("destroyed");
    let report = running.wait().await.expect("report");
    assert_eq!(killed(&report), Some(&KillReason::Destroyed));
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn provisioning_and_pending_are_seen_and_destroy_wins_over_them() {
    let (fake, sandbox) = sandbox();
    let gate = Arc::new(Notify::new());
    *lock(&fake.gate) = Some(gate.clone());
    let creating = tokio::spawn({
        let sandbox = sandbox.clone();
        async move {
            sandbox
                .create_session(&agent(), Some(session("s")), Default::default())
                .await
        }
    });
    let status = || sandbox.session_status(&agent(), &session("s"));
    until("provisioning", || status() == SessionStatus::Provisioning).await;

    let handle = sandbox
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    let pending = tokio::spawn({
        let handle = handle.clone();
        async move { handle.run(words("echo hello")).await }
    });
    until("pending", || {
        handle
            .executions()
            .iter()
            .any(|info| info.status == ExecutionStatus::Pending)
    })
    .await;
    let destroying = tokio::spawn({
        let handle = handle.clone();
        async move { handle.destroy().await }
    });
    until("destroying", || status() == SessionStatus::Destroying).await;
    gate.notify_one();
    destroying.await.expect("task").expect("destroyed");
    assert!(creating.await.expect("task").is_err());
    assert!(pending.await.expect("task").is_err());
    assert_eq!(status(), SessionStatus::Destroyed);
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    assert_eq!(fake.ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn names_are_unique_and_unknown_sessions_are_gone_already() {
    let (fake, sandbox) = sandbox();
    create(&sandbox, "s").await;
    let again = sandbox
        .create_session(&agent(), Some(session("s")), Default::default())
        .await;
    assert!(matches!(again, Err(Error::SessionExists { .. })));
    assert_eq!(fake.started.load(Ordering::SeqCst), 1);
    sandbox
        .destroy_session(&agent(), &session("unknown"))
        .await
        .expect("nothing to do");
    let other = "Agent".parse().expect("name");
    sandbox
        .destroy_session(&other, &session("s"))
        .await
        .expect("another agent's");
    assert_eq!(
        sandbox.session_status(&agent(), &session("s")),
        SessionStatus::Ready
    );
    assert_eq!(
        sandbox.session_status(&other, &session("s")),
        SessionStatus::Destroyed
    );
    sandbox
        .destroy_session(&agent(), &session("s"))
        .await
        .expect("destroyed");
    create(&sandbox, "s").await;
    assert_eq!(sandbox.list_sessions().expect("list").len(), 1);
}

#[tokio::test]
async fn a_session_that_does_not_start_leaves_nothing() {
    let (fake, sandbox) = sandbox();
    fake.refuse_to_start.store(true, Ordering::SeqCst);
    let failed = sandbox
        .create_session(&agent(), Some(session("s")), Default::default())
        .await;
    assert!(matches!(failed, Err(Error::Setup { .. })));
    assert_eq!(
        sandbox.session_status(&agent(), &session("s")),
        SessionStatus::Destroyed
    );
    fake.refuse_to_start.store(false, Ordering::SeqCst);
    create(&sandbox, "s").await;
}

#[tokio::test]
async fn a_lost_instance_is_noticed() {
    let (fake, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let lost = session.run(words("die")).await.expect_err("lost");
    assert!(matches!(lost, Error::InstanceLost(_)));
    assert_eq!(fake.ran.load(Ordering::SeqCst), 1, "it is not run again");
}

#[tokio::test]
async fn output_streams_and_input_is_passed_on() {
    let (_, sandbox) = sandbox();
    let session = create(&sandbox, "s").await;
    let mut request = Request::command(["stdin"]);
    request.stdin = Some(Box::new(&b"some input"[..]));
    request.stream = true;
    let mut running = session.start(request).await.expect("running");
    let mut seen = Vec::new();
    while let Some(event) = running.next_event().await {
        match event {
            Event::Stdout(bytes) => seen.extend_from_slice(&bytes),
            Event::Started => assert!(seen.is_empty()),
            Event::Stderr(_) => panic!("nothing was written there"),
        }
    }
    assert_eq!(seen, b"some input");
    assert_eq!(
        running.wait().await.expect("report").outcome.stdout.total,
        10
    );
}

#[tokio::test]
async fn once_leaves_nothing_and_records_everything() {
    let fake = Arc::new(Fake::default());
    let log = Arc::new(MemoryLog::default());
    let sandbox = Sandbox::builder(fake.clone())
        .recorder(log.clone())
        .build()
        .expect("sandbox");
    let report = sandbox
        .run_once(
            &agent(),
            SessionConfig::default(),
            Request::command(["echo", "x"]),
        )
        .await
        .expect("report");
    assert_eq!(report.status(), ExecutionStatus::Completed);
    assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    assert!(sandbox.list_sessions().expect("list").is_empty());
    let facts: Vec<_> = log
        .records()
        .into_iter()
        .map(|record| record.event)
        .collect();
    assert!(
        matches!(
            &facts[..],
            [
                Fact::SessionCreated { .. },
                Fact::Decided { allowed: true, .. },
                Fact::ExecutionStarted { .. },
                Fact::ExecutionFinished {
                    exit_code: Some(0),
                    ..
                },
                Fact::Receipt(_),
                Fact::SessionDestroyed,
            ]
        ),
        "{facts:?}"
    );

    let running = sandbox
        .start_once(
            &agent(),
            SessionConfig::default(),
            Request::command(["sleep"]),
        )
        .await
        .expect("running");
    assert_eq!(fake.alive.load(Ordering::SeqCst), 1);
    drop(running);
    until("nothing left", || fake.alive.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn every_execution_has_a_receipt_and_none_repeats_a_secret() {
    let folder = tempfile::tempdir().expect("folder");
    let log = Arc::new(MemoryLog::default());
    for _ in 0..2 {
        let sandbox = Sandbox::builder(Arc::new(Fake::default()))
            .state_dir(folder.path())
            .recorder(log.clone())
            .build()
            .expect("sandbox");
        let id: crate::SessionId = "s".parse().expect("name");
        let session = match sandbox.open_session(&agent(), &id).await {
            Ok(session) => session,
            Err(_) => sandbox
                .create_session(&agent(), Some(id), SessionConfig::default())
                .await
                .expect("session"),
        };
        let mut request = Request::command(["echo", "the hunter2 token"]);
        request.env = vec![("TOKEN".into(), "hunter2".into())];
        let running = session.start(request).await.expect("running");
        running.wait().await.expect("report");
        session.close().await.expect("closed");
    }
    let receipts: Vec<_> = log
        .records()
        .into_iter()
        .filter_map(|record| match record.event {
            Fact::Receipt(receipt) => Some(receipt),
            _ => None,
        })
        .collect();
    let steps: Vec<u64> = receipts.iter().map(|receipt| receipt.step).collect();
    assert_eq!(steps, [0, 1], "counted across processes");
    for receipt in receipts {
        assert_eq!(receipt.decision, brig_audit::Verdict::Allowed);
        assert_eq!(receipt.action, "run");
        assert!(receipt.stdout.excerpt.contains("[redacted]"), "{receipt:?}");
        assert!(!format!("{receipt:?}").contains("hunter2"), "{receipt:?}");
    }
}
