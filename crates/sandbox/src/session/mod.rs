//! A session: files and settings that persist across executions.

mod busy;
mod checkpoints;
mod destroy;
mod execute;
mod files;
mod inner;
mod live;
mod network;
mod open;
mod removal;
mod ticket;

use std::sync::Arc;

pub use checkpoints::Checkpoint;
pub use files::Upload;
pub(crate) use inner::Inner;
pub(crate) use live::Live;

use crate::execution::ExecutionInfo;
use crate::shared::{Shared, lock};
use crate::{
    AgentId, ControlState, Error, ExecutionId, KillReason, Result, SessionConfig, SessionId,
    SessionStatus,
};

/// A handle to a session. Cheap to clone; the session lives until it is destroyed.
#[derive(Clone, Debug)]
pub struct Session {
    shared: Arc<Shared>,
    inner: Arc<Inner>,
}

impl Session {
    pub(crate) fn of(shared: Arc<Shared>, inner: Arc<Inner>) -> Self {
        Self { shared, inner }
    }

    /// The agent it belongs to.
    pub fn agent(&self) -> &AgentId {
        &self.inner.key.agent
    }

    /// Its name.
    pub fn id(&self) -> &SessionId {
        &self.inner.key.session
    }

    /// What it was created with.
    pub fn config(&self) -> &SessionConfig {
        &self.inner.config
    }

    /// Its state.
    pub fn status(&self) -> SessionStatus {
        self.inner.status_in(&self.shared)
    }

    /// What enforces each control, and how strongly.
    pub fn enforcement(&self) -> Vec<ControlState> {
        lock(&self.inner.state).plan.enforcement().to_vec()
    }

    /// What is known about an execution.
    pub fn execution(&self, id: &ExecutionId) -> Result<ExecutionInfo> {
        let state = lock(&self.inner.state);
        state
            .table
            .get(id)
            .cloned()
            .ok_or_else(|| Error::NoExecution(id.to_string()))
    }

    /// All that run, and the newest that ended.
    pub fn executions(&self) -> Vec<ExecutionInfo> {
        lock(&self.inner.state).table.list().cloned().collect()
    }

    /// Ends an execution. False if it does not run.
    pub fn cancel(&self, id: &ExecutionId) -> bool {
        lock(&self.inner.state)
            .table
            .kill(id, KillReason::Cancelled)
    }

    /// Ends the instance, or leaves it if another process can join it. The session and its files
    /// stay, and another process may open it then.
    pub async fn close(&self) -> Result<()> {
        let mut slot = self.inner.slot.lock().await;
        self.inner.idle()?;
        if let Some(live) = slot.live.take() {
            if !self.inner.durable && self.inner.config.workspace.is_none() && !live.is_lost() {
                let head = self.inner.home_in(&mut slot, &self.shared).await?.head();
                self.shared.save(&head, live.instance.as_ref()).await?;
            }
            match live.instance.lease() {
                // Its files are saved; it ends with its lease, unless it is joined before.
                Some(lease) if self.inner.durable && !live.is_lost() => {
                    if let Some(head) = &live.head {
                        head.keep_lease(&lease)?;
                    }
                }
                _ => live.instance.destroy().await?,
            }
        }
        if self.inner.durable {
            lock(&self.inner.state).busy.detach();
            slot.home = None;
        }
        Ok(())
    }
}
