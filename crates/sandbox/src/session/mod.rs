//! A place with files that lives across executions.

mod busy;
mod checkpoints;
mod destroy;
mod execute;
mod files;
mod inner;
mod live;
mod network;
mod open;
mod standing;
mod ticket;

use std::sync::Arc;

pub use checkpoints::Checkpoint;
pub(crate) use inner::Inner;
pub(crate) use network::replace as replace_network;

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

    pub fn agent(&self) -> &AgentId {
        &self.inner.owner.agent
    }

    pub fn id(&self) -> &SessionId {
        &self.inner.owner.session
    }

    /// What it was created with.
    pub fn config(&self) -> &SessionConfig {
        &self.inner.config
    }

    pub fn status(&self) -> SessionStatus {
        self.inner.status_in(&self.shared)
    }

    /// What holds each limit, and how strongly.
    pub fn enforcement(&self) -> Vec<ControlState> {
        lock(&self.inner.state).plan.enforcement().to_vec()
    }

    pub fn execution(&self, id: &ExecutionId) -> Result<ExecutionInfo> {
        let state = lock(&self.inner.state);
        state
            .table
            .get(id)
            .cloned()
            .ok_or_else(|| Error::NoExecution(id.to_string()))
    }

    /// All that are under way, and the newest of those that ended.
    pub fn executions(&self) -> Vec<ExecutionInfo> {
        lock(&self.inner.state).table.list().cloned().collect()
    }

    /// Ends an execution; says whether there was one to end.
    pub fn cancel(&self, id: &ExecutionId) -> bool {
        lock(&self.inner.state)
            .table
            .kill(id, KillReason::Cancelled)
    }

    /// Ends the instance; the session and its files stay. Another process may open it then.
    pub async fn close(&self) -> Result<()> {
        let mut slot = self.inner.slot.lock().await;
        self.inner.idle()?;
        if let Some(live) = slot.live.take() {
            if !self.inner.durable && self.inner.config.workspace.is_none() && !live.is_lost() {
                let head = self.inner.home_in(&mut slot, &self.shared).await?.head();
                head.save(live.instance.as_ref()).await?;
            }
            live.instance.destroy().await?;
        }
        if self.inner.durable {
            lock(&self.inner.state).busy.detach();
            slot.home = None;
        }
        Ok(())
    }
}
