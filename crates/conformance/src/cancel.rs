use std::time::{Duration, Instant};

use brig_sandbox::{
    Control, Event, ExecutionHandle, ExecutionStatus, KillReason, Request, Session,
};

use super::fixture::{Done, Fixture, check, check_eq, sh, text, until};
use super::program::{Step, cat, print};

/// Starts a program and waits for its first line.
async fn begun(session: &Session, mut request: Request) -> Done<ExecutionHandle> {
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

pub(crate) async fn a_cancelled_execution_ends_with_its_tree(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let mut seconds = 5;
    loop {
        let script = format!(
            "trap '' TERM INT HUP; rm -f late; (sleep {seconds}; touch late) & echo began; sleep 200"
        );
        let mut request = sh(&script);
        request.timeout = Some(Duration::from_secs(200));
        let started = Instant::now();
        let running = begun(&session, request).await?;
        running.cancel();
        let report = running.wait().await?;
        check_eq!(report.status(), ExecutionStatus::Cancelled);
        let outcome = report.outcome;
        check_eq!(outcome.killed, Some(KillReason::Cancelled));
        check_eq!(outcome.stdout.bytes, b"began\n");
        let limit = Duration::from_secs(seconds);
        if started.elapsed() >= limit && seconds < 60 {
            // The machine is too slow to end it before the file is made.
            seconds *= 2;
            continue;
        }
        // Longer than it would have taken to make the file.
        let late = Instant::now() + limit + Duration::from_secs(1);
        tokio::time::sleep_until(late.into()).await;
        check_eq!(text(&session, "ls").await?, "");
        return Ok(());
    }
}

pub(crate) async fn it_can_be_cancelled_by_its_id(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let running = begun(
        &session,
        fixture.program([print("began\n"), Step::SleepMs(60_000)]),
    )
    .await?;
    let steps = [print("began\n"), Step::SleepMs(1000), print("end\n")];
    let beside = begun(&session, fixture.program(steps)).await?;
    check!(session.cancel(running.id()), "there was nothing to cancel");
    check_eq!(running.wait().await?.status(), ExecutionStatus::Cancelled);
    let id = beside.id().clone();
    check_eq!(beside.wait().await?.status(), ExecutionStatus::Completed);
    check!(!session.cancel(&id), "it had ended already");
    check!(
        !session.cancel(&"unknown".parse()?),
        "there is no such execution"
    );
    Ok(())
}

pub(crate) async fn dropping_it_cancels_it(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let running = begun(
        &session,
        fixture.program([print("began\n"), Step::SleepMs(60_000)]),
    )
    .await?;
    let id = running.id().clone();
    drop(running);
    let status = || session.execution(&id).map(|info| info.status);
    until("cancelled", || {
        matches!(status(), Ok(ExecutionStatus::Cancelled))
    })
    .await
}

pub(crate) async fn it_runs_exactly_once(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let ran = |name: &str| Step::Append(name.into(), "ran\n".into());
    let sleep = Step::SleepMs(60_000);
    let mut limit = Duration::from_secs(3);
    let deadline = loop {
        let name = format!("deadline-{}", limit.as_secs());
        let mut request = fixture.program([ran(&name), sleep.clone()]);
        request.timeout = Some(limit);
        session.start(request).await?.wait().await?;
        let steps = [Step::Append(name.clone(), String::new()), cat(&name)];
        // Nothing if the machine is too slow to get to the first step.
        if !fixture.output(&session, steps).await?.is_empty() || limit.as_secs() > 30 {
            break name;
        }
        limit *= 2;
    };
    let failed = fixture.program([ran("failed"), Step::Exit(1)]);
    session.start(failed).await?.wait().await?;
    let mut names = vec![&*deadline, "failed", "cancelled"];
    if fixture.has(Control::LinuxUserland).await? {
        let killed = sh("echo ran >> killed; kill -9 $$");
        session.start(killed).await?.wait().await?;
        names.push("killed");
    }
    let steps = [ran("cancelled"), print("began\n"), sleep.clone()];
    let running = begun(&session, fixture.program(steps)).await?;
    running.cancel();
    running.wait().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for name in names {
        check_eq!(
            (name, fixture.output(&session, [cat(name)]).await?),
            (name, "ran\n".into())
        );
    }
    let early = fixture.program([ran("early"), sleep]);
    let running = session.start(early).await?;
    running.cancel();
    running.wait().await?;
    fixture
        .output(&session, [Step::Append("early".into(), String::new())])
        .await?;
    let early = fixture.output(&session, [cat("early")]).await?;
    check!(
        ["", "ran\n"].contains(&early.as_str()),
        "it ran more than once: {early:?}"
    );
    Ok(())
}

pub(crate) async fn signals_are_passed_on(fixture: Fixture) -> Done {
    fixture.needs(Control::Signals).await?;
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let script = "trap 'echo caught; exit 7' USR1; echo began; while :; do sleep 0.05; done";
    let running = begun(&session, sh(script)).await?;
    running.signal(10);
    let outcome = running.wait().await?.outcome;
    check_eq!(outcome.exit_code, 7);
    check_eq!(outcome.stdout.bytes, b"began\ncaught\n");
    Ok(())
}

pub(crate) async fn a_signal_for_a_job_reaches_all_of_it(fixture: Fixture) -> Done {
    fixture.needs(Control::Signals).await?;
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    // The shell waits for its child. As at a terminal, the signal must end both.
    for (signal, code) in [(2, 130), (15, 143)] {
        let running = begun(&session, sh("echo began; sleep 50; echo after")).await?;
        running.signal(signal);
        let outcome = running.wait().await?.outcome;
        check_eq!(outcome.exit_code, code);
        check_eq!(outcome.stdout.bytes, b"began\n");
        check_eq!(outcome.killed, None);
    }
    Ok(())
}
