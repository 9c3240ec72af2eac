use std::time::{Duration, Instant};

use super::fixture::{Done, Fixture, check, check_eq, outcome, run, sh};
use crate::config::OutputOverflow;
use crate::{Event, KillReason, Limit, Outcome, Running, Session, SessionConfig};

fn limited(fixture: &Fixture, bytes: u64, overflow: OutputOverflow) -> SessionConfig {
    let mut config = fixture.config();
    config.limits.output_bytes = Limit::asked(bytes);
    config.limits.output_overflow = overflow;
    config
}

async fn written(session: &Session, script: &str) -> Done<Outcome> {
    outcome(run(session, sh(script)).await?)
}

pub async fn streams_are_apart_and_counted(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = written(
        &session,
        "head -c 1000 /dev/zero; head -c 2000 /dev/zero >&2",
    )
    .await?;
    check_eq!((outcome.stdout.total, outcome.stderr.total), (1000, 2000));
    check_eq!(
        (outcome.stdout.bytes.len(), outcome.stderr.bytes.len()),
        (1000, 2000)
    );
    let outcome = written(&session, "exit 0").await?;
    check_eq!((outcome.stdout.total, outcome.stderr.total), (0, 0));
    check!(!outcome.stdout.truncated(), "an empty stream is not cut");
    Ok(())
}

pub async fn a_long_stream_is_cut_and_counted(fixture: Fixture) -> Done {
    let session = fixture
        .session_with(limited(&fixture, 10_000, OutputOverflow::Truncate))
        .await?;
    let script = "printf begin; head -c 5000000 /dev/zero; echo end >&2; exit 3";
    let outcome = written(&session, script).await?;
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

pub async fn a_stream_of_exactly_the_limit_is_whole(fixture: Fixture) -> Done {
    for overflow in [OutputOverflow::Truncate, OutputOverflow::Kill] {
        let session = fixture
            .session_with(limited(&fixture, 1000, overflow))
            .await?;
        let outcome = written(&session, "head -c 1000 /dev/zero").await?;
        check!(
            outcome.success() && !outcome.stdout.truncated(),
            "{overflow:?}: {outcome:?}"
        );
    }
    let session = fixture
        .session_with(limited(&fixture, 1000, OutputOverflow::Truncate))
        .await?;
    let outcome = written(&session, "head -c 1001 /dev/zero").await?;
    check!(outcome.stdout.truncated(), "control: one byte more is cut");
    check_eq!(outcome.stdout.total, 1001);
    Ok(())
}

pub async fn bytes_that_are_not_text_arrive(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = written(&session, r"printf '\000\377\376\r\n\033[0m'").await?;
    check_eq!(outcome.stdout.bytes, b"\0\xff\xfe\r\n\x1b[0m");
    Ok(())
}

pub async fn too_much_output_can_be_an_end(fixture: Fixture) -> Done {
    let session = fixture
        .session_with(limited(&fixture, 1000, OutputOverflow::Kill))
        .await?;
    let begun = Instant::now();
    for stream in ["", ">&2"] {
        let script = format!("while true; do echo something; done {stream}");
        let outcome = written(&session, &script).await?;
        check_eq!(
            outcome.killed,
            Some(KillReason::Output { limit_bytes: 1000 })
        );
        let kept = outcome.stdout.bytes.len().max(outcome.stderr.bytes.len());
        check_eq!(kept, 1000);
    }
    check!(
        begun.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begun.elapsed()
    );
    Ok(())
}

pub async fn output_comes_while_the_program_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let mut request = sh("echo first; sleep 1; echo second");
    request.stream = true;
    let begun = Instant::now();
    let mut running = session.start(request).await?;
    let mut first = None;
    let mut seen = Vec::new();
    let mut started = 0;
    while let Some(event) = running.next_event().await {
        match event {
            Event::Started => started += 1,
            Event::Stdout(bytes) => {
                check_eq!(started, 1);
                first.get_or_insert_with(|| begun.elapsed());
                seen.extend_from_slice(&bytes);
            }
            Event::Stderr(bytes) => check!(false, "unexpected {bytes:?}"),
        }
    }
    check_eq!(seen, b"first\nsecond\n");
    let first = first.unwrap_or_default();
    check!(
        first < Duration::from_millis(900),
        "the first line came after {first:?}"
    );
    check_eq!(
        outcome(running.wait().await?)?.stdout.bytes,
        b"first\nsecond\n"
    );
    Ok(())
}

async fn read_slowly(running: &mut Running) -> u64 {
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

pub async fn a_slow_reader_loses_nothing(fixture: Fixture) -> Done {
    let size = 4 * 1024 * 1024;
    let session = fixture
        .session_with(limited(&fixture, size, OutputOverflow::Truncate))
        .await?;
    let mut request = sh(&format!("head -c {size} /dev/zero"));
    request.stream = true;
    let mut running = session.start(request).await?;
    check_eq!(read_slowly(&mut running).await, size);
    check_eq!(outcome(running.wait().await?)?.stdout.total, size);
    Ok(())
}

pub async fn a_reader_that_stopped_does_not_stop_the_deadline(fixture: Fixture) -> Done {
    let size = 64 * 1024 * 1024;
    let session = fixture
        .session_with(limited(&fixture, size, OutputOverflow::Truncate))
        .await?;
    let beside = session.start(sh("sleep 4; echo beside")).await?;
    let mut request = sh("while true; do echo something; done");
    request.stream = true;
    request.timeout = Some(Duration::from_millis(500));
    let running = session.start(request).await?;
    // Nobody reads for much longer than the deadline.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let info = session.execution(running.id())?;
    let status = info.status;
    let report = running.wait().await?;
    check!(
        report.outcome.is_some_and(|o| o.killed.is_some()),
        "it was not ended"
    );
    check_eq!(outcome(beside.wait().await?)?.stdout.bytes, b"beside\n");
    check!(
        status != crate::ExecutionStatus::Running,
        "it went on while nobody read"
    );
    Ok(())
}
