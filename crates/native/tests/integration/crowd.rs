//! Many sandboxes that are made and ended at once.

use std::sync::Arc;
use std::time::Duration;

use brig_native::NativeBackend;
use brig_sandbox::config::MountSpec;
use brig_sandbox::{AgentId, Request, Sandbox, SessionConfig};
use tokio::task::JoinSet;

/// Processes that wait to be let go are cloned side by side, with and without mounts of root's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()));
    let sandbox = sandbox.build().unwrap();
    let agent: AgentId = "crowd".parse().unwrap();
    let mut crowd = JoinSet::new();
    for number in 0..64 {
        let (sandbox, agent) = (sandbox.clone(), agent.clone());
        let mut config = SessionConfig::default();
        if number % 2 == 0 {
            config.mounts.push(MountSpec {
                source: folder.path().to_owned(),
                target: "/data".into(),
                writable: false,
            });
        }
        crowd.spawn(async move {
            let request = Request::command(["true"]);
            let report = sandbox.run_once(&agent, config, request).await.unwrap();
            assert_eq!(report.outcome.exit_code, 0);
        });
    }
    let all = async { while crowd.join_next().await.transpose().unwrap().is_some() {} };
    let limit = Duration::from_secs(300) * brig_testing::patience();
    tokio::time::timeout(limit, all)
        .await
        .expect("they wait for each other");
}
