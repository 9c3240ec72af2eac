use std::time::Duration;

use brig_sandbox::{Control, Outcome, Request, Session};

use super::fixture::{Done, Fixture, check, check_eq, sh};
use super::program::{Step, print};

async fn with_input(session: &Session, mut request: Request, input: Vec<u8>) -> Done<Outcome> {
    request.stdin = Some(Box::new(std::io::Cursor::new(input)));
    Ok(session.start(request).await?.wait().await?.outcome)
}

pub(crate) async fn input_reaches_the_program(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let input = b"one\ntwo\n".to_vec();
    let copy = fixture.program([Step::CopyInput]);
    let outcome = with_input(&session, copy, input.clone()).await?;
    check_eq!(outcome.stdout.bytes, input);
    if fixture.has(Control::LinuxUserland).await? {
        let outcome = with_input(&session, sh("read line; echo got $line; cat"), input);
        check_eq!(outcome.await?.stdout.bytes, b"got one\ntwo\n");
    }
    Ok(())
}

pub(crate) async fn without_input_it_reads_as_empty(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = session
        .start(fixture.program([Step::CountInput]))
        .await?
        .wait()
        .await?
        .outcome;
    check_eq!(String::from_utf8_lossy(&outcome.stdout.bytes).trim(), "0");
    Ok(())
}

pub(crate) async fn much_input_is_passed_on(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let size = 8 * 1024 * 1024;
    let outcome = with_input(
        &session,
        fixture.program([Step::CountInput]),
        vec![b'x'; size],
    )
    .await?;
    check_eq!(
        String::from_utf8_lossy(&outcome.stdout.bytes).trim(),
        size.to_string()
    );
    // Both ways at once, through a program that answers as it reads.
    let outcome = with_input(
        &session,
        fixture.program([Step::CopyInput]),
        vec![b'x'; size],
    )
    .await?;
    check_eq!(outcome.stdout.total, size as u64);
    Ok(())
}

pub(crate) async fn unread_input_does_not_block_the_end(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = with_input(
        &session,
        fixture.program([print("done\n")]),
        vec![b'x'; 1024 * 1024],
    )
    .await?;
    check_eq!(outcome.stdout.bytes, b"done\n");
    // Input that never ends does not keep an execution that has.
    let (keep, input) = tokio::io::duplex(64);
    let mut request = fixture.program([print("done\n")]);
    request.stdin = Some(Box::new(input));
    let waited = session.start(request).await?.wait();
    let report = tokio::time::timeout(Duration::from_secs(120), waited).await;
    check!(report.is_ok(), "it waits for input that nobody wants");
    drop(keep);
    Ok(())
}
