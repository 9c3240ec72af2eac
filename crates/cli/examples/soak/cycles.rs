//! One session after the other, in one process that lives on.

use std::sync::Arc;
use std::time::Instant;

use brig_native::NativeBackend;
use brig_sandbox::{AgentId, ExecutionStatus, Sandbox, SessionConfig};

use crate::census::Watch;

/// Before anything is counted: what is opened once and kept is not left behind.
const WARM_UP: usize = 20;

pub(crate) fn run(cycles: usize) -> Result<String, String> {
    let state = tempfile::tempdir().map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .state_dir(state.path())
        .build()
        .map_err(|error| error.to_string())?;
    let watch = Watch::new();
    runtime.block_on(async {
        for _ in 0..WARM_UP {
            cycle(&sandbox).await?;
        }
        let before = watch.take();
        let began = Instant::now();
        for number in 0..cycles {
            cycle(&sandbox)
                .await
                .map_err(|why| format!("cycle {number}: {why}"))?;
        }
        let took = began.elapsed();
        watch.settles(&before)?;
        Ok(format!(
            "{cycles} cycles, nothing left behind, {:.2} ms each",
            took.as_secs_f64() * 1000.0 / cycles as f64
        ))
    })
}

async fn cycle(sandbox: &Sandbox) -> Result<(), String> {
    let agent: AgentId = "soak".parse().map_err(|_| "the name of the agent")?;
    let told = |error: brig_sandbox::Error| error.to_string();
    let session = sandbox
        .create_session(&agent, None, SessionConfig::default())
        .await
        .map_err(told)?;
    let report = session.run(vec!["/bin/true".into()]).await.map_err(told)?;
    session.destroy().await.map_err(told)?;
    if report.status() == ExecutionStatus::Completed {
        Ok(())
    } else {
        Err(report.to_json().to_string())
    }
}
