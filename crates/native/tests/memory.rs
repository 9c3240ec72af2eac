//! Who is told of a kill for want of memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::config::Limit;
use brig_sandbox::{
    AgentId, Backend, Control, KillReason, Language, Outcome, Sandbox, Session, SessionConfig,
    Strength,
};

async fn session(memory: u64) -> (Session, Strength) {
    let backend = Arc::new(NativeBackend::new());
    let mut config = SessionConfig::default();
    config.limits.memory_bytes = Limit::default_of(memory);
    let strength = backend.controls(&config.limits).strength(Control::Memory);
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "memory".parse().unwrap();
    let session = sandbox.create_session(&agent, None, config).await.unwrap();
    (session, strength)
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
    let (session, strength) = session(64 << 20).await;
    if strength != Strength::Enforced {
        brig_testing::skip("the blame for memory", "no control group counts it here");
        return;
    }
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

/// Memory that is shared without a file stays when it is not in use by anyone: a process can fill
/// much of it and never seem large.
#[tokio::test]
async fn shared_memory_that_is_not_in_use_is_counted() {
    let (session, _) = session(128 << 20).await;
    let take = |total: u64| {
        format!(
            "import mmap, time\n\
             total, step = {total}, 16 << 20\n\
             shared = mmap.mmap(-1, total)\n\
             for start in range(0, total, step):\n\
             \x20   for page in range(start, start + step, 4096): shared[page] = 1\n\
             \x20   shared.madvise(mmap.MADV_DONTNEED, start, step)\n\
             time.sleep(1)\n"
        )
    };
    let fine = session.execute_code(Language::Python, take(64 << 20)).await;
    assert_eq!(fine.unwrap().outcome.unwrap().killed, None);
    let much = session
        .execute_code(Language::Python, take(512 << 20))
        .await;
    let killed = much.unwrap().outcome.unwrap().killed;
    assert!(
        matches!(killed, Some(KillReason::Memory { .. })),
        "{killed:?}"
    );
}
