//! Watching over one container from outside: the end of it, and its limits.

use std::path::Path;

use async_trait::async_trait;
use brig_sandbox::link::{Guard, Mark};
use brig_sandbox::{Error, KillReason, Plan, Result};

use crate::leftovers::Name;
use crate::stream::LastWords;

#[derive(Debug)]
pub struct DockerGuard {
    container: Name,
    words: LastWords,
    /// Whether the workspace is a folder of the host, which saves itself.
    host_workspace: bool,
    disk_limit: u64,
}

impl DockerGuard {
    pub fn new(container: Name, words: LastWords, plan: &Plan) -> Self {
        Self {
            container,
            words,
            host_workspace: plan.workspace().is_some(),
            disk_limit: plan.limits().disk_bytes.value,
        }
    }
}

#[async_trait]
impl Guard for DockerGuard {
    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn start_failure(&self) -> Option<Error> {
        let problem = self.words.text();
        (!problem.is_empty()).then(|| Error::Setup {
            step: "start the guest in its container".into(),
            problem,
        })
    }

    fn mark(&self) -> Mark {
        Mark::default()
    }

    async fn breach(&self, _since: Mark) -> KillReason {
        std::future::pending().await
    }

    fn verdict(&self, _since: Mark) -> Option<KillReason> {
        None
    }

    fn peak_memory(&self) -> Option<u64> {
        None
    }

    fn forget_peak(&self) -> bool {
        false
    }

    fn largest_file(&self) -> u64 {
        if self.host_workspace {
            u64::MAX
        } else {
            self.disk_limit
        }
    }

    fn process_id(&self) -> Option<u32> {
        None
    }

    async fn save(&self, _into: &Path) -> Result<()> {
        if self.host_workspace {
            return Ok(());
        }
        Err(Error::Unavailable {
            backend: "docker",
            problem: "it cannot save a workspace".into(),
        })
    }

    fn kill(&self) {
        self.container.kill();
    }

    async fn release(&self) -> Result<()> {
        self.container.remove().await
    }
}
