use std::time::Duration;

use brig_sandbox::config::OutputOverflow;
use brig_sandbox::{
    Control, Event, ExecutionHandle, KillReason, Limit, Outcome, Session, SessionConfig,
};

use super::fixture::{Done, Fixture, check, check_eq, run, sh, until};
use super::program::{Step, print};

fn limited(fixture: &Fixture, bytes: u64, overflow: OutputOverflow) -> SessionConfig {
    let mut config = fixture.config();
    config.limits.output_bytes = Limit::asked(bytes);
    config.limits.output_overflow = overflow;
    config
}

async fn written(fixture: &Fixture, session: &Session, steps: &[Step]) -> Done<Outcome> {
    Ok(run(session, fixture.program(steps)).await?.outcome)
}

pub(crate) async fn streams_are_apart_and_counted(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = written(
        &fixture,
        &session,
        &[Step::Zeros(1000), Step::ZerosError(2000)],
    )
    .await?;
    check_eq!((outcome.stdout.total, outcome.stderr.total), (1000, 2000));
    check_eq!(
        (outcome.stdout.bytes.len(), outcome.stderr.bytes.len()),
        (1000, 2000)
    );
    let outcome = written(&fixture, &session, &[Step::Exit(0)]).await?;
    check_eq!((outcome.stdout.total, outcome.stderr.total), (0, 0));
    check!(!outcome.stdout.truncated(), "an empty stream is not cut");
    Ok(())
}

pub(crate) async fn a_long_stream_is_cut_and_counted(fixture: Fixture) -> Done {
    let session = fixture
        .session_with(limited(&fixture, 10_000, OutputOverflow::Truncate))
        .await?;
    let steps = [
        print("begin"),
        Step::Zeros(5_000_000),
        Step::PrintError("end\n".into()),
        Step::Exit(3),
    ];
    let outcome = written(&fixture, &session, &steps).await?;
    check_eq!(outcome.exit_code, 3);
    check_eq!(outcome.killed, None);
    check_eq!(outcome.stdout.bytes.len(), 10_000);
    check_eq!(outcome.stdout.total, 5_000_005);
    check!(
        outcome.stdout.bytes.starts_with(b"begin"),
        "the beginning is kept"
    );
    check!(
        outcome.stdout.truncated() && !outcome.stderr.truncated(),
        "only one was too long"
    );
    check_eq!(outcome.stderr.bytes, b"end\n");
    Ok(())
}

pub(crate) async fn a_stream_of_exactly_the_limit_is_whole(fixture: Fixture) -> Done {
    for overflow in [OutputOverflow::Truncate, OutputOverflow::Kill] {
        let session = fixture
            .session_with(limited(&fixture, 1000, overflow))
            .await?;
        let outcome = written(&fixture, &session, &[Step::Zeros(1000)]).await?;
        check!(
            outcome.success() && !outcome.stdout.truncated(),
            "{overflow:?}: {outcome:?}"
        );
    }
    let session = fixture
        .session_with(limited(&fixture, 1000, OutputOverflow::Truncate))
        .await?;
    let outcome = written(&fixture, &session, &[Step::Zeros(1001)]).await?;
    check!(outcome.stdout.truncated(), "control: one byte more is cut");
    check_eq!(outcome.stdout.total, 1001);
    Ok(())
}

/// A program that writes one byte too many and exits is over before any kill can reach it.
pub(crate) async fn one_byte_too_many_can_be_an_end(fixture: Fixture) -> Done {
    let session = fixture
        .session_with(limited(&fixture, 1000, OutputOverflow::Kill))
        .await?;
    for _ in 0..5 {
        let outcome = written(&fixture, &session, &[Step::Zeros(1001)]).await?;
        let reason = KillReason::Output { limit_bytes: 1000 };
        check_eq!(outcome.killed, Some(reason));
        check_eq!(outcome.exit_code, 137);
        check_eq!(outcome.stdout.bytes.len(), 1000);
    }
    Ok(())
}

pub(crate) async fn bytes_that_are_not_text_arrive(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let script = r"printf '\000\377\376\r\n\033[0m'";
    let outcome = run(&session, sh(script)).await?.outcome;
    check_eq!(outcome.stdout.bytes, b"\0\xff\xfe\r\n\x1b[0m");
    Ok(())
}

pub(crate) async fn too_much_output_can_be_an_end(fixture: Fixture) -> Done {
    let session = fixture
        .session_with(limited(&fixture, 1000, OutputOverflow::Kill))
        .await?;
    for step in [Step::PrintForever, Step::PrintErrorForever] {
        let outcome = written(&fixture, &session, &[step]).await?;
        check_eq!(
            outcome.killed,
            Some(KillReason::Output { limit_bytes: 1000 })
        );
        let kept = outcome.stdout.bytes.len().max(outcome.stderr.bytes.len());
        check_eq!(kept, 1000);
    }
    Ok(())
}

pub(crate) async fn output_comes_while_the_program_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let steps = [
        print("first\n"),
        Step::WaitFor("seen".into()),
        print("second\n"),
    ];
    let mut request = fixture.program(steps);
    request.stream = true;
    let mut running = session.start(request).await?;
    let mut seen = Vec::new();
    let mut started = 0;
    while let Some(event) = running.next_event().await {
        match event {
            Event::Started => started += 1,
            Event::Stdout(bytes) => {
                check_eq!(started, 1);
                seen.extend_from_slice(&bytes);
                // Without this it never ends: its first line must come while it runs.
                if seen == b"first\n" {
                    session.upload("seen", 0o644, &b""[..]).await?;
                }
            }
            other => check!(false, "unexpected {other:?}"),
        }
    }
    check_eq!(seen, b"first\nsecond\n");
    check_eq!(
        running.wait().await?.outcome.stdout.bytes,
        b"first\nsecond\n"
    );
    Ok(())
}

async fn read_slowly(running: &mut ExecutionHandle) -> u64 {
    let mut total = 0;
    let mut pieces = 0_u32;
    while let Some(event) = running.next_event().await {
        if let Event::Stdout(bytes) = event {
            total += bytes.len() as u64;
        }
        pieces += 1;
        if pieces.is_multiple_of(8) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    total
}

pub(crate) async fn a_slow_reader_loses_nothing(fixture: Fixture) -> Done {
    let size = 4 * 1024 * 1024;
    let session = fixture
        .session_with(limited(&fixture, size, OutputOverflow::Truncate))
        .await?;
    let mut request = fixture.program([Step::Zeros(size)]);
    request.stream = true;
    let mut running = session.start(request).await?;
    check_eq!(read_slowly(&mut running).await, size);
    check_eq!(running.wait().await?.outcome.stdout.total, size);
    Ok(())
}

pub(crate) async fn a_reader_gets_all_of_it(fixture: Fixture) -> Done {
    let session = fixture
        .session_with(limited(&fixture, 1000, OutputOverflow::Truncate))
        .await?;
    let mut request = fixture.program([Step::Zeros(3_000_000), Step::ZerosError(2_000_000)]);
    request.stream = true;
    let mut running = session.start(request).await?;
    let (mut stdout, mut stderr) = (0, 0);
    while let Some(event) = running.next_event().await {
        match event {
            Event::Stdout(bytes) => stdout += bytes.len(),
            Event::Stderr(bytes) => stderr += bytes.len(),
            _ => {}
        }
    }
    check_eq!((stdout, stderr), (3_000_000, 2_000_000));
    let kept = running.wait().await?.outcome;
    check_eq!(
        (kept.stdout.bytes.len(), kept.stdout.total),
        (1000, 3_000_000)
    );
    check_eq!(
        (kept.stderr.bytes.len(), kept.stderr.total),
        (1000, 2_000_000)
    );
    Ok(())
}

pub(crate) async fn a_reader_that_stopped_does_not_stop_the_deadline(fixture: Fixture) -> Done {
    let size = 64 * 1024 * 1024;
    let session = fixture
        .session_with(limited(&fixture, size, OutputOverflow::Truncate))
        .await?;
    let beside = session
        .start(fixture.program([Step::SleepMs(4000), print("beside\n")]))
        .await?;
    let mut request = fixture.program([Step::PrintForever]);
    request.stream = true;
    request.timeout = Some(Duration::from_millis(500));
    let running = session.start(request).await?;
    // Nobody reads, and it ends all the same.
    let running_still = || {
        let info = session.execution(running.id());
        info.is_ok_and(|info| info.status == brig_sandbox::ExecutionStatus::Running)
    };
    until("ended while nobody reads", || !running_still()).await?;
    let report = running.wait().await?;
    check!(report.outcome.killed.is_some(), "it was not ended");
    check_eq!(beside.wait().await?.outcome.stdout.bytes, b"beside\n");
    Ok(())
}
