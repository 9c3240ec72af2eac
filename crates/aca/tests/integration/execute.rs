//! Executions: started once, whatever becomes of the answer.

use std::sync::Arc;
use std::time::Duration;

use brig_sandbox::{ExecutionHandle, KillReason, Request, Sandbox, Session, SessionConfig};
use serde_json::json;

use crate::create::{sandbox, session, text};
use crate::stand_in::{Fault, StandIn};

/// The execs of a session before its first program: the check of the image.
const BEFORE: usize = 1;

#[tokio::test]
async fn a_start_whose_answer_is_lost_is_not_sent_again() {
    for fault in [
        Fault::Lost,
        Fault::DoneBut(504),
        Fault::Answer(json!({"stdout": "", "stderr": ""})),
        Fault::Status(500, "ServerError"),
        Fault::Status(503, ""),
    ] {
        let stand_in = StandIn::start().await;
        let sandbox = sandbox(&stand_in);
        let session = session(&sandbox, SessionConfig::default()).await;
        text(&session, "true").await.unwrap();
        let before = stand_in.count("exec");
        assert_eq!(before, BEFORE + 1, "control");
        stand_in.fail("exec", fault.clone());
        let ran = text(&session, "echo x >> ran; cat ran").await;
        assert_eq!(stand_in.count("exec"), before + 1, "{fault:?}");
        match fault {
            // It was not started, and can't start any more.
            Fault::Answer(_) | Fault::Status(..) => {
                assert_eq!(ran.unwrap_err().code(), "backend.lost", "{fault:?}");
                assert!(stand_in.state().sandboxes.is_empty(), "{fault:?}");
            }
            // It was started, and goes on.
            _ => assert_eq!(ran.unwrap(), "x\n", "{fault:?}"),
        }
        session.destroy().await.unwrap();
        stand_in.check_clean();
    }
}

#[tokio::test]
async fn a_start_that_was_refused_is_an_error() {
    for (fault, code) in [
        (Fault::Status(403, ""), "azure.role"),
        (Fault::Status(429, ""), "azure.failed"),
        (
            Fault::Answer(json!({"success": false, "error": "no"})),
            "azure.failed",
        ),
    ] {
        let stand_in = StandIn::start().await;
        let sandbox = sandbox(&stand_in);
        let session = session(&sandbox, SessionConfig::default()).await;
        text(&session, "true").await.unwrap();
        let before = stand_in.count("exec");
        stand_in.fail("exec", fault.clone());
        let error = text(&session, "echo x >> ran").await.unwrap_err();
        assert_eq!(error.code(), code, "{fault:?}: {error}");
        assert_eq!(stand_in.count("exec"), before + 1, "{fault:?}");
        assert_eq!(text(&session, "ls").await.unwrap(), "", "it did not run");
        session.destroy().await.unwrap();
        stand_in.check_clean();
    }
}

#[tokio::test]
async fn a_suspended_sandbox_is_woken_up() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "echo kept > file").await.unwrap();
    stand_in.suspend();
    assert_eq!(text(&session, "cat file").await.unwrap(), "kept\n");
    assert_eq!((stand_in.count("resume"), stand_in.count("create")), (1, 1));

    stand_in.suspend();
    stand_in.state().on_read =
        Some(|value| value["egressPolicy"]["defaultAction"] = json!("Allow"));
    let error = text(&session, "echo never").await.unwrap_err();
    assert_eq!(error.code(), "azure.egress-policy", "{error}");
    assert!(
        stand_in.state().sandboxes.is_empty(),
        "woken up open, it is deleted"
    );
    stand_in.check_clean();
}

#[tokio::test]
async fn what_only_reads_is_repeated() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "true").await.unwrap();
    for fault in [Fault::Status(429, ""), Fault::Status(500, ""), Fault::Lost] {
        stand_in.fail("read", fault);
    }
    stand_in.fail("write", Fault::Status(503, ""));
    assert_eq!(text(&session, "echo one").await.unwrap(), "one\n");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn an_exit_code_that_makes_no_sense_is_an_error() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "true").await.unwrap();
    stand_in.fail("read", Fault::Answer(json!({"exit": "missing"})));
    let error = text(&session, "true").await.unwrap_err();
    assert_eq!(error.code(), "backend.protocol", "{error}");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_sandbox_that_the_service_lost_is_told() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "true").await.unwrap();
    stand_in.state().sandboxes.clear();
    let error = text(&session, "true").await.unwrap_err();
    assert_eq!(error.code(), "backend.lost", "{error}");
    stand_in.check_clean();
}

#[tokio::test]
async fn too_much_on_the_disk_is_an_end() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let mut config = SessionConfig::default();
    config.limits.disk_bytes.value = 2 << 20;
    let session = session(&sandbox, config).await;
    let script = "for i in 1 2 3 4; do head -c 1000000 /dev/zero > file$i; done; sleep 60";
    let mut request = Request::command(["/bin/sh", "-c", script]);
    request.timeout = Some(Duration::from_secs(55));
    let outcome = session
        .start(request)
        .await
        .unwrap()
        .wait()
        .await
        .unwrap()
        .outcome;
    assert_eq!(
        outcome.killed,
        Some(KillReason::Disk {
            limit_bytes: 2 << 20
        })
    );
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

/// A session whose program goes on until it is killed, and whether it runs.
const ENDLESS: &str = "echo $$ > pid; exec sleep 3600";
const RUNS: &str = "if kill -0 $(cat pid) 2>/dev/null; then echo runs; else echo ended; fi";

/// Starts it, and lets every look for its end fail from when it surely runs.
async fn unseen(stand_in: &StandIn, session: &Session) -> ExecutionHandle {
    let running = session.start(Request::command(["/bin/sh", "-c", ENDLESS]));
    let running = running.await.unwrap();
    while text(session, "cat pid 2>/dev/null || true")
        .await
        .unwrap()
        .is_empty()
    {}
    assert_eq!(text(session, RUNS).await.unwrap(), "runs\n", "control");
    for _ in 0..25 {
        stand_in.fail("read", Fault::Status(500, "ServerError"));
    }
    running
}

#[tokio::test]
async fn a_program_whose_end_cannot_be_seen_is_killed() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    let running = unseen(&stand_in, &session).await;
    let error = running.wait().await.unwrap_err();
    assert_eq!(error.code(), "azure.failed", "{error}");
    stand_in.forget_faults();
    assert_eq!(text(&session, RUNS).await.unwrap(), "ended\n");
    assert_eq!((stand_in.count("create"), stand_in.count("delete")), (1, 0));
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_program_that_cannot_be_killed_is_deleted_with_its_sandbox() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    let running = unseen(&stand_in, &session).await;
    stand_in.fail("exec", Fault::Status(500, "ServerError"));
    let error = running.wait().await.unwrap_err();
    assert_eq!(error.code(), "azure.failed", "{error}");
    assert!(stand_in.state().sandboxes.is_empty());
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_start_without_an_answer_ends_and_is_not_sent_again() {
    let stand_in = StandIn::start().await;
    let backend = Arc::new(stand_in.impatient_backend());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "true").await.unwrap();
    let before = stand_in.count("exec");
    stand_in.fail("exec", Fault::Hang);
    let error = text(&session, "echo x >> ran").await.unwrap_err();
    assert_eq!(error.code(), "backend.lost", "{error}");
    assert_eq!(stand_in.count("exec"), before + 1);
    assert!(stand_in.state().sandboxes.is_empty(), "it can't begin late");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_look_and_a_deletion_without_an_answer_are_sent_again() {
    let stand_in = StandIn::start().await;
    let backend = Arc::new(stand_in.impatient_backend());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    stand_in.fail("get", Fault::Hang);
    let session = session(&sandbox, SessionConfig::default()).await;
    assert_eq!(text(&session, "echo one").await.unwrap(), "one\n");
    assert_eq!((stand_in.count("create"), stand_in.count("get")), (1, 2));
    stand_in.fail("delete", Fault::Hang);
    session.destroy().await.unwrap();
    assert_eq!(stand_in.count("delete"), 2);
    stand_in.check_clean();
}

#[tokio::test]
async fn what_comes_too_often_waits_as_long_as_the_service_says() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    stand_in.fail("get", Fault::TooMany(2));
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "true").await.unwrap();
    let times: Vec<_> = {
        let state = stand_in.state();
        let kinds = state.log.iter().zip(&state.requests);
        kinds
            .filter(|(kind, _)| **kind == "get")
            .map(|(_, (at, _))| *at)
            .collect()
    };
    // Otherwise it would be 10 ms.
    assert!(times[1] - times[0] >= Duration::from_secs(2), "{times:?}");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

/// The service says 200 and means no.
#[tokio::test]
async fn what_was_not_successful_is_no_success() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "true").await.unwrap();
    let before = stand_in.count("exec");
    let no = || Fault::Answer(json!({"success": false, "error": "the disk is full"}));
    stand_in.fail("write", no());
    let error = text(&session, "echo x >> ran").await.unwrap_err();
    assert_eq!(error.code(), "azure.failed", "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(stand_in.count("exec"), before, "nothing was started");

    stand_in.fail("write", no());
    let put = session.upload("file", 0o644, &b"content"[..]).await;
    assert_eq!(put.unwrap_err().code(), "azure.failed");
    assert_eq!(text(&session, "ls").await.unwrap(), "");

    // What is left of an execution is in the way of nobody.
    stand_in.fail("remove", no());
    assert_eq!(text(&session, "echo one").await.unwrap(), "one\n");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_deadline_ends_all_that_was_started() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    let script =
        "trap '' TERM; echo $$ > pid; setsid sleep 3600 & echo $! > other; echo began; sleep 3600";
    let mut request = Request::command(["/bin/sh", "-c", script]);
    // Longer than it takes to start, on any machine.
    request.timeout = Some(Duration::from_secs(30));
    let ended = session.start(request).await.unwrap().wait().await.unwrap();
    let outcome = ended.outcome;
    let limit_ms = 30_000;
    assert_eq!(outcome.killed, Some(KillReason::Timeout { limit_ms }));
    assert_eq!(outcome.stdout.bytes, b"began\n");
    assert_eq!(text(&session, RUNS).await.unwrap(), "ended\n");
    let other = text(&session, &RUNS.replace("pid", "other")).await;
    assert_eq!(other.unwrap(), "ended\n");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}
