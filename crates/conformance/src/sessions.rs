use std::time::{Duration, Instant};

use brig_sandbox::{
    AgentId, Control, Error, ExecutionStatus, KillReason, SessionId, SessionStatus,
};

use super::fixture::{Done, Fixture, agent, check, check_eq, session_id, sh, text, until};
use super::program::{Step, cat, make_directory, print, write};

pub(crate) async fn files_stay_between_executions(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let steps = [make_directory("a/b"), write("a/b/kept", "one\n")];
    fixture.output(&session, steps).await?;
    check_eq!(fixture.output(&session, [cat("a/b/kept")]).await?, "one\n");
    if !fixture.has(Control::LinuxUserland).await? {
        return Ok(());
    }
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

pub(crate) async fn sessions_do_not_see_each_other(fixture: Fixture) -> Done {
    let sandbox = fixture.sandbox()?;
    let first = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    let second = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    fixture.output(&first, [write("file", "secret")]).await?;
    check_eq!(fixture.output(&second, [Step::List]).await?, "");
    if !fixture.has(Control::LinuxUserland).await? {
        return Ok(());
    }
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

pub(crate) async fn names_are_exact(fixture: Fixture) -> Done {
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
    fixture.output(&session, [write("file", "lower\n")]).await?;
    let other = sandbox
        .create_session(&upper, Some(id.clone()), config.clone())
        .await?;
    check_eq!(fixture.output(&other, [Step::List]).await?, "");
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

pub(crate) async fn an_unknown_session_is_gone_already(fixture: Fixture) -> Done {
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
        let after = session.start(fixture.program([Step::Exit(0)])).await;
        check!(matches!(after, Err(Error::NoSession { .. })), "{after:?}");
    }
    Ok(())
}

pub(crate) async fn executions_run_side_by_side(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    // Each waits for the file of the other, so one after the other would never end.
    let program = |own: &str, other: &str| {
        let met = print("met\n");
        fixture.program([write(own, ""), Step::WaitFor(other.into()), met])
    };
    let first = session.start(program("a", "b")).await?;
    let second = session.start(program("b", "a")).await?;
    for running in [first, second] {
        check_eq!(running.wait().await?.outcome.stdout.bytes, b"met\n");
    }
    let mut many = Vec::new();
    for index in 0..20 {
        let program = fixture.program([print(&format!("{index}\n"))]);
        many.push((index, session.start(program).await?));
    }
    for (index, running) in many {
        let outcome = running.wait().await?.outcome;
        check_eq!(outcome.stdout.bytes, format!("{index}\n").into_bytes());
    }
    Ok(())
}

pub(crate) async fn destroy_wins(fixture: Fixture) -> Done {
    for sandbox in [fixture.sandbox()?, fixture.process()?] {
        let session = sandbox
            .create_session(&agent(), None, fixture.config())
            .await?;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(session.start(fixture.stubborn().await?).await?);
        }
        let begun = Instant::now();
        session.destroy().await?;
        check!(
            begun.elapsed() < Duration::from_secs(50),
            "it took {:?}",
            begun.elapsed()
        );
        for running in all {
            let outcome = running.wait().await?.outcome;
            check_eq!(outcome.killed, Some(KillReason::Destroyed));
        }
        check_eq!(session.status(), SessionStatus::Destroyed);
        check!(sandbox.list_sessions()?.is_empty(), "it is still listed");
    }
    Ok(())
}

pub(crate) async fn statuses_are_told(fixture: Fixture) -> Done {
    let sandbox = fixture.sandbox()?;
    let id = session_id("s")?;
    let status = || sandbox.session_status(&agent(), &id);
    check_eq!(status(), SessionStatus::Destroyed);
    let config = fixture.config();
    let session = sandbox
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    check_eq!(status(), SessionStatus::Ready);
    let running = session
        .start(fixture.program([Step::SleepMs(60_000)]))
        .await?;
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

pub(crate) async fn what_ended_can_be_looked_up(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let running = session
        .start(fixture.program([print("hello\n"), Step::Exit(2)]))
        .await?;
    let id = running.detach();
    let info = || session.execution(&id);
    until("ended", || {
        info().is_ok_and(|info| info.status == ExecutionStatus::Failed)
    })
    .await?;
    let report = info()?.report.map(|report| report.outcome);
    check_eq!(
        report.map(|outcome| outcome.stdout.bytes),
        Some(b"hello\n".to_vec())
    );
    let unknown = session.execution(&"unknown".parse()?);
    check!(matches!(unknown, Err(Error::NoExecution(_))), "{unknown:?}");
    Ok(())
}
