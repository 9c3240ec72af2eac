//! What flows into and out of a sandbox, and who stops waiting for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use brig_native::NativeBackend;
use brig_sandbox::request::TerminalSize;
use brig_sandbox::{AgentId, Request, Sandbox, Session, SessionConfig};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::timeout;

async fn session() -> Session {
    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "streams".parse().unwrap();
    let config = SessionConfig::default();
    sandbox.create_session(&agent, None, config).await.unwrap()
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(120), work)
        .await
        .expect("it takes too long")
}

/// More than all buffers on the way hold, in both directions at once.
#[tokio::test]
async fn much_input_comes_back_as_output() {
    let session = session().await;
    let length = 16 * 1024 * 1024;
    let mut request = Request::command(["cat"]);
    request.stdin = Some(Box::new(std::io::Cursor::new(vec![b'x'; length])));
    let report = soon(session.start(request).await.unwrap().wait()).await;
    let outcome = report.unwrap().outcome;
    assert_eq!((outcome.exit_code, outcome.killed), (0, None));
    assert_eq!(outcome.stdout.total, length as u64);
}

#[tokio::test]
async fn input_that_nobody_reads_spoils_nothing() {
    let session = session().await;
    for _ in 0..20 {
        let mut request = Request::command(["true"]);
        let input = vec![b'x'; 4 * 1024 * 1024];
        request.stdin = Some(Box::new(std::io::Cursor::new(input)));
        let report = soon(session.start(request).await.unwrap().wait()).await;
        assert_eq!(report.unwrap().outcome.exit_code, 0);
    }
}

/// The end of input reaches a terminal also after an unfinished line.
#[tokio::test]
async fn a_terminal_sees_the_end_of_input() {
    let session = session().await;
    for input in ["", "one\n", "one\ntwo"] {
        let mut request = Request::command(["cat"]);
        request.terminal = Some(TerminalSize {
            rows: 24,
            columns: 80,
        });
        request.stdin = Some(Box::new(input.as_bytes()));
        let report = soon(session.start(request).await.unwrap().wait()).await;
        let outcome = report.unwrap().outcome;
        assert_eq!((outcome.exit_code, outcome.killed), (0, None), "{input:?}");
    }
}

/// Gives one byte and then nothing, for ever.
struct Stuck(bool);

impl AsyncRead for Stuck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Pending;
        }
        into.put_slice(b"x");
        Poll::Ready(Ok(()))
    }
}

/// Takes nothing.
struct Full;

impl tokio::io::AsyncWrite for Full {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Pending
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

/// The guest would run out of descriptors if it kept a file open for each.
#[tokio::test]
async fn transfers_that_are_given_up_are_forgotten() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    brig_testing::alone!();
    let before = getrlimit(Resource::Nofile);
    let mut few = before;
    few.current = Some(160);
    setrlimit(Resource::Nofile, few).unwrap();
    let session = session().await;
    setrlimit(Resource::Nofile, before).unwrap();

    let mut content: &[u8] = b"content";
    session.upload("file", 0o644, &mut content).await.unwrap();
    let moment = Duration::from_millis(5);
    for _ in 0..100 {
        let up = session.upload("stuck", 0o644, Stuck(false));
        assert!(timeout(moment, up).await.is_err());
        let down = session.download("file", Full);
        assert!(timeout(moment, down).await.is_err());
    }
    let mut out = Vec::new();
    session.download("file", &mut out).await.unwrap();
    assert_eq!(out, b"content");
    let report = session.run(vec!["true".into()]).await.unwrap();
    assert_eq!(report.outcome.exit_code, 0);
}
