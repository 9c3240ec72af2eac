use std::time::{Duration, Instant};

use super::fixture::{Done, Fixture, agent, check, check_eq, outcome, session_id, sh, text, until};
use crate::{AgentId, Error, ExecutionStatus, KillReason, SessionId, SessionStatus};

pub async fn files_stay_between_executions(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    text(
        &session,
        "mkdir -p a/b; echo one > a/b/file; echo two > /tmp/file; chmod 600 a/b/file",
    )
    .await?;
    check_eq!(
        text(&session, "cat a/b/file /tmp/file; stat -c %a a/b/file").await?,
        "one\ntwo\n600\n"
    );
    Ok(())
}

pub async fn sessions_do_not_see_each_other(fixture: Fixture) -> Done {
    let sandbox = fixture.sandbox()?;
    let first = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    let second = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    text(
        &first,
        "echo secret > file; echo secret > /tmp/file; echo secret > /dev/shm/file",
    )
    .await?;
    check_eq!(
        text(
            &second,
            "ls /workspace /tmp /dev/shm | grep -c file || true"
        )
        .await?,
        "0\n"
    );
    let running = first.start(sh("exec sleep 61")).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let seen = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[s]leep 61' || true";
    check_eq!(text(&second, seen).await?.trim(), "0");
    running.cancel();
    running.wait().await?;
    Ok(())
}

pub async fn names_are_exact(fixture: Fixture) -> Done {
    let long = "a".repeat(129);
    for name in [
        "",
        "a\n",
        "a b",
        "-a",
        ".a",
        "a/b",
        "a\0",
        "\u{e9}",
        long.as_str(),
    ] {
        check!(
            name.parse::<AgentId>().is_err(),
            "agent {name:?} was accepted"
        );
        check!(
            name.parse::<SessionId>().is_err(),
            "session {name:?} was accepted"
        );
    }
    let sandbox = fixture.process()?;
    let (lower, upper): (AgentId, AgentId) = ("agent".parse()?, "AGENT".parse()?);
    let id = session_id("s.1_2-3")?;
    let config = fixture.config();
    let session = sandbox
        .create_session(&lower, Some(id.clone()), config.clone())
        .await?;
    text(&session, "echo lower > file").await?;
    let other = sandbox
        .create_session(&upper, Some(id.clone()), config.clone())
        .await?;
    check_eq!(text(&other, "ls").await?, "");
    let taken = sandbox
        .create_session(&lower, Some(id.clone()), config)
        .await;
    check!(
        matches!(taken, Err(Error::SessionExists { .. })),
        "{taken:?}"
    );
    check_eq!(sandbox.list_sessions()?.len(), 2);
    Ok(())
}

pub async fn an_unknown_session_is_gone_already(fixture: Fixture) -> Done {
    for sandbox in [fixture.sandbox()?, fixture.process()?] {
        let id = session_id("unknown")?;
        sandbox.destroy_session(&agent(), &id).await?;
        check_eq!(
            sandbox.session_status(&agent(), &id),
            SessionStatus::Destroyed
        );
        let missing = sandbox.open_session(&agent(), &id).await;
        check!(
            matches!(missing, Err(Error::NoSession { .. })),
            "{missing:?}"
        );
        let session = sandbox
            .create_session(&agent(), None, fixture.config())
            .await?;
        session.destroy().await?;
        session.destroy().await?;
        let after = session.start(sh("exit 0")).await;
        check!(matches!(after, Err(Error::NoSession { .. })), "{after:?}");
    }
    Ok(())
}

pub async fn executions_run_side_by_side(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    // Each waits for the file of the other, so one after the other would never end.
    let script = |own: &str, other: &str| {
        format!("touch {own}; while [ ! -e {other} ]; do sleep 0.02; done; echo met")
    };
    let first = session.start(sh(&script("a", "b"))).await?;
    let second = session.start(sh(&script("b", "a"))).await?;
    for running in [first, second] {
        check_eq!(outcome(running.wait().await?)?.stdout.bytes, b"met\n");
    }
    let mut many = Vec::new();
    for index in 0..20 {
        many.push((index, session.start(sh(&format!("echo {index}"))).await?));
    }
    for (index, running) in many {
        let outcome = outcome(running.wait().await?)?;
        check_eq!(outcome.stdout.bytes, format!("{index}\n").into_bytes());
    }
    Ok(())
}

pub async fn destroy_wins(fixture: Fixture) -> Done {
    for sandbox in [fixture.sandbox()?, fixture.process()?] {
        let session = sandbox
            .create_session(&agent(), None, fixture.config())
            .await?;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(session.start(sh("trap '' TERM; sleep 60")).await?);
        }
        let begun = Instant::now();
        session.destroy().await?;
        check!(
            begun.elapsed() < Duration::from_secs(2),
            "it took {:?}",
            begun.elapsed()
        );
        for running in all {
            let outcome = outcome(running.wait().await?)?;
            check_eq!(outcome.killed, Some(KillReason::Destroyed));
        }
        check_eq!(session.status(), SessionStatus::Destroyed);
        check!(sandbox.list_sessions()?.is_empty(), "it is still listed");
    }
    Ok(())
}

pub async fn statuses_are_told(fixture: Fixture) -> Done {
    let sandbox = fixture.sandbox()?;
    let id = session_id("s")?;
    let status = || sandbox.session_status(&agent(), &id);
    check_eq!(status(), SessionStatus::Destroyed);
    let config = fixture.config();
    let session = sandbox
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    check_eq!(status(), SessionStatus::Ready);
    let running = session.start(sh("sleep 60")).await?;
    check_eq!(status(), SessionStatus::Executing);
    check_eq!(
        session.execution(running.id())?.status,
        ExecutionStatus::Running
    );
    running.cancel();
    running.wait().await?;
    check_eq!(status(), SessionStatus::Ready);
    let destroying = tokio::spawn({
        let session = session.clone();
        async move { session.destroy().await }
    });
    until("destroyed", || status() == SessionStatus::Destroyed).await?;
    destroying.await??;
    Ok(())
}

pub async fn what_ended_can_be_looked_up(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let running = session.start(sh("echo hello; exit 2")).await?;
    let id = running.detach();
    let info = || session.execution(&id);
    until("ended", || {
        info().is_ok_and(|info| info.status == ExecutionStatus::Failed)
    })
    .await?;
    let report = info()?.report.and_then(|report| report.outcome);
    check_eq!(
        report.map(|outcome| outcome.stdout.bytes),
        Some(b"hello\n".to_vec())
    );
    let unknown = session.execution(&"unknown".parse()?);
    check!(matches!(unknown, Err(Error::NoExecution(_))), "{unknown:?}");
    Ok(())
}
