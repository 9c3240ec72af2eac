use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use super::fake::{Fake, agent, session, words};
use crate::{ExecutionStatus, Request, SessionConfig, SessionStatus, blocking};

#[test]
fn the_lifecycle_without_a_runtime() {
    let sandbox = crate::Sandbox::builder(Arc::new(Fake::default()))
        .build()
        .expect("sandbox");
    let sandbox = blocking::Sandbox::new(sandbox).expect("sandbox");
    let session = sandbox
        .create_session(&agent(), Some(session("s")), SessionConfig::default())
        .expect("session");
    let report = session.run(words("echo hello")).expect("report");
    assert_eq!(report.outcome.stdout.bytes, b"hello\n");
    assert_eq!(
        session.upload("a", 0o644, &b"content"[..]).expect("upload"),
        7
    );
    let mut content = Vec::new();
    session.download("a", &mut content).expect("download");
    assert_eq!(content, b"content");

    let mut request = Request::command(["sleep"]);
    request.timeout = Some(Duration::from_millis(20));
    let id = session.start(request).expect("running").detach();
    let ended = (0..3000).any(|_| {
        sleep(Duration::from_millis(20));
        session.execution(&id).expect("known").status == ExecutionStatus::Failed
    });
    assert!(ended, "the deadline holds while nobody waits");
    session.destroy().expect("destroyed");
    assert_eq!(session.status(), SessionStatus::Destroyed);
}
