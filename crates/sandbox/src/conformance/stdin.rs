use std::time::Duration;

use super::fixture::{Done, Fixture, check, check_eq, outcome, sh};
use crate::{Outcome, Session};

async fn with_input(session: &Session, script: &str, input: Vec<u8>) -> Done<Outcome> {
    let mut request = sh(script);
    request.stdin = Some(Box::new(std::io::Cursor::new(input)));
    outcome(session.start(request).await?.wait().await?)
}

pub async fn input_reaches_the_program(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = with_input(
        &session,
        "read line; echo got $line; cat",
        b"one\ntwo\n".to_vec(),
    );
    check_eq!(outcome.await?.stdout.bytes, b"got one\ntwo\n");
    Ok(())
}

pub async fn without_input_it_reads_as_empty(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = outcome(session.start(sh("wc -c")).await?.wait().await?)?;
    check_eq!(String::from_utf8_lossy(&outcome.stdout.bytes).trim(), "0");
    Ok(())
}

pub async fn much_input_is_passed_on(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let size = 8 * 1024 * 1024;
    let outcome = with_input(&session, "wc -c", vec![b'x'; size]).await?;
    check_eq!(
        String::from_utf8_lossy(&outcome.stdout.bytes).trim(),
        size.to_string()
    );
    // Both ways at once, through a program that answers as it reads.
    let outcome = with_input(&session, "cat", vec![b'x'; size]).await?;
    check_eq!(outcome.stdout.total, size as u64);
    Ok(())
}

pub async fn input_that_nobody_reads_is_no_trouble(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = with_input(&session, "echo done", vec![b'x'; 1024 * 1024]).await?;
    check_eq!(outcome.stdout.bytes, b"done\n");
    // Input that never ends does not keep an execution that has.
    let (keep, input) = tokio::io::duplex(64);
    let mut request = sh("echo done");
    request.stdin = Some(Box::new(input));
    let waited = session.start(request).await?.wait();
    let report = tokio::time::timeout(Duration::from_secs(10), waited).await;
    check!(report.is_ok(), "it waits for input that nobody wants");
    drop(keep);
    Ok(())
}
