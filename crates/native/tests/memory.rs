//! Who is told of a kill for want of memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::config::Limit;
use brig_sandbox::{
    AgentId, Backend, Control, KillReason, Outcome, Sandbox, Session, SessionConfig, Strength,
};

async fn session() -> Option<Session> {
    let backend = Arc::new(NativeBackend::new());
    let mut config = SessionConfig::default();
    config.limits.memory_bytes = Limit::default_of(64 << 20);
    let controls = backend.controls(&config.limits);
    if controls.strength(Control::Memory) != Strength::Enforced {
        return None;
    }
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "memory".parse().unwrap();
    Some(sandbox.create_session(&agent, None, config).await.unwrap())
}

async fn run(session: &Session, script: &str) -> Outcome {
    let report = session
        .run(vec!["sh".into(), "-c".into(), script.into()])
        .await;
    report.unwrap().outcome.unwrap()
}

const HOG: &str = "python3 -c 'x = bytearray(256 << 20)'";

/// What befell one execution and was survived is no business of the next.
#[tokio::test]
async fn the_next_execution_is_not_blamed() {
    let Some(session) = session().await else {
        brig_testing::skip(
            "the blame for memory",
            "no control group counts memory here",
        );
        return;
    };
    let hog = run(&session, HOG).await;
    assert!(
        matches!(hog.killed, Some(KillReason::Memory { .. })),
        "{hog:?}"
    );
    run(&session, &format!("{HOG}; exit 0")).await;
    for _ in 0..3 {
        let next = run(&session, "sleep 0.1").await;
        assert_eq!((next.exit_code, next.killed), (0, None));
    }
}
