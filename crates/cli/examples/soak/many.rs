//! Many sessions alive at the same time.

use std::sync::Arc;
use std::time::Instant;

use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Sandbox, SessionConfig, SessionStatus};
use brig_testing::descendants;

use crate::census::Watch;

pub(crate) fn run(count: usize) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let told = |error: brig_sandbox::Error| error.to_string();
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .map_err(told)?;
    let agent: AgentId = "soak".parse().map_err(|_| "the name of the agent")?;
    runtime.block_on(async {
        // What is opened once and kept is not left behind.
        let first = sandbox
            .create_session(&agent, None, SessionConfig::default())
            .await;
        first.map_err(told)?.destroy().await.map_err(told)?;
        let watch = Watch::new();
        let before = watch.take();

        let began = Instant::now();
        let mut sessions = Vec::with_capacity(count);
        for number in 0..count {
            let session = sandbox
                .create_session(&agent, None, SessionConfig::default())
                .await;
            sessions.push(session.map_err(|error| format!("session {number}: {error}"))?);
        }
        let made = began.elapsed();
        if descendants().len() < count {
            return Err(format!(
                "only {} processes for {count} sessions",
                descendants().len()
            ));
        }
        // Every one of them still works, and has its own files.
        for (number, session) in sessions.iter().enumerate() {
            let write = format!("test ! -e mark && echo {number} >mark && cat mark");
            let argv = vec!["/bin/sh".into(), "-c".into(), write];
            let report = session.run(argv).await.map_err(told)?;
            let said = report.outcome.stdout.bytes;
            if said != format!("{number}\n").into_bytes() {
                return Err(format!(
                    "session {number} said {}",
                    String::from_utf8_lossy(&said)
                ));
            }
            if session.status() != SessionStatus::Ready {
                return Err(format!("session {number} is {:?}", session.status()));
            }
        }
        for session in sessions {
            session.destroy().await.map_err(told)?;
        }
        watch.settles(&before)?;
        Ok(format!(
            "{count} sessions alive together, made in {:.1} s, all done in {:.1} s",
            made.as_secs_f64(),
            began.elapsed().as_secs_f64()
        ))
    })
}
