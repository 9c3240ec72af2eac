use std::time::{Duration, Instant};

use super::fixture::{Done, Fixture, check, check_eq, outcome, sh, text, until};
use crate::{Event, ExecutionStatus, KillReason, Running, Session};

/// Starts a script and waits for its first line.
async fn begun(session: &Session, script: &str) -> Done<Running> {
    let mut request = sh(script);
    request.stream = true;
    let mut running = session.start(request).await?;
    while let Some(event) = running.next_event().await {
        if matches!(event, Event::Stdout(_)) {
            return Ok(running);
        }
    }
    check!(false, "it ended before its first line");
    Ok(running)
}

pub async fn a_cancelled_execution_ends_with_its_tree(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let script = "trap '' TERM INT HUP; (sleep 2; touch late) & echo began; sleep 60";
    let running = begun(&session, script).await?;
    let cancelled = Instant::now();
    running.cancel();
    let report = running.wait().await?;
    check!(
        cancelled.elapsed() < Duration::from_secs(1),
        "{:?}",
        cancelled.elapsed()
    );
    check_eq!(report.status, ExecutionStatus::Cancelled);
    let outcome = outcome(report)?;
    check_eq!(outcome.killed, Some(KillReason::Cancelled));
    check_eq!(outcome.stdout.bytes, b"began\n");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    check_eq!(text(&session, "ls").await?, "");
    Ok(())
}

pub async fn it_can_be_cancelled_by_its_id(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let running = begun(&session, "echo began; sleep 60").await?;
    let beside = begun(&session, "echo began; sleep 1; echo end").await?;
    check!(session.cancel(running.id()), "there was nothing to cancel");
    check_eq!(running.wait().await?.status, ExecutionStatus::Cancelled);
    let id = beside.id().clone();
    check_eq!(beside.wait().await?.status, ExecutionStatus::Completed);
    check!(!session.cancel(&id), "it had ended already");
    check!(
        !session.cancel(&"unknown".parse()?),
        "there is no such execution"
    );
    Ok(())
}

pub async fn dropping_it_cancels_it(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let running = begun(&session, "echo began; sleep 60").await?;
    let id = running.id().clone();
    drop(running);
    let status = || session.execution(&id).map(|info| info.status);
    until("cancelled", || {
        matches!(status(), Ok(ExecutionStatus::Cancelled))
    })
    .await
}

pub async fn it_runs_exactly_once(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let mut request = sh("echo ran >> deadline; sleep 60");
    request.timeout = Some(Duration::from_millis(300));
    session.start(request).await?.wait().await?;
    session
        .start(sh("echo ran >> failed; exit 1"))
        .await?
        .wait()
        .await?;
    session
        .start(sh("echo ran >> killed; kill -9 $$"))
        .await?
        .wait()
        .await?;
    let running = begun(&session, "echo ran >> cancelled; echo began; sleep 60").await?;
    running.cancel();
    running.wait().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for name in ["deadline", "failed", "killed", "cancelled"] {
        check_eq!(
            (name, text(&session, &format!("cat {name}")).await?),
            (name, "ran\n".into())
        );
    }
    let running = session.start(sh("echo ran >> early; sleep 60")).await?;
    running.cancel();
    running.wait().await?;
    let early = text(&session, "cat early || true").await?;
    check!(
        ["", "ran\n"].contains(&early.as_str()),
        "it ran more than once: {early:?}"
    );
    Ok(())
}

pub async fn signals_are_passed_on(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let script = "trap 'echo caught; exit 7' USR1; echo began; while :; do sleep 0.05; done";
    let running = begun(&session, script).await?;
    running.signal(10);
    let outcome = outcome(running.wait().await?)?;
    check_eq!(outcome.exit_code, 7);
    check_eq!(outcome.stdout.bytes, b"began\ncaught\n");
    Ok(())
}
