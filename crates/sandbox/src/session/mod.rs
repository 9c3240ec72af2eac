//! A place with files that lives across executions.

mod checkpoints;
mod destroy;
mod execute;
mod files;
mod inner;

use std::sync::Arc;

use jiff::Timestamp;

pub use checkpoints::Checkpoint;
pub(crate) use inner::Inner;

use crate::execution::ExecutionInfo;
use crate::shared::{Shared, lock};
use crate::{
    AgentId, ControlState, Error, ExecutionId, KillReason, Plan, Result, SessionConfig, SessionId,
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

    pub(crate) async fn create(
        shared: Arc<Shared>,
        agent: AgentId,
        id: SessionId,
        config: SessionConfig,
    ) -> Result<Self> {
        let plan = Plan::make(&config, shared.backend.as_ref(), Vec::new())?;
        let created = plan.created(shared.backend.name());
        let inner = Arc::new(Inner::new(agent, id, config, Timestamp::now(), plan));
        inner.register(&shared)?;
        let session = Self { shared, inner };
        let unfinished = Unfinished(Some(&session));
        session.shared.record(&session.inner.owner, None, created)?;
        session.inner.live(&session.shared).await?;
        unfinished.keep();
        Ok(session)
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
        self.inner.status()
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
}

/// Takes a session back that never came to be, also when its maker stopped waiting.
struct Unfinished<'a>(Option<&'a Session>);

impl Unfinished<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.inner.abandon(&session.shared);
        }
    }
}
