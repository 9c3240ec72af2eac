//! The state behind all handles to one session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};

use crate::backend::ExecCommand;
use crate::execution::table::Table;
use crate::sandbox::SessionInfo;
use crate::shared::{Owner, Shared, lock};
use crate::{
    AgentId, Error, ExecutionId, Instance, Plan, Report, Result, SessionConfig, SessionId,
    SessionStatus,
};

#[derive(Debug)]
pub(crate) struct Inner {
    pub owner: Owner,
    pub config: SessionConfig,
    pub created: Timestamp,
    /// Never held across an await.
    pub state: Mutex<State>,
    /// The instance. Held while it is started, saved, replaced or ended.
    pub slot: tokio::sync::Mutex<Slot>,
    /// Told whenever an execution ends and when the session is gone.
    pub changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Provisioning,
    Failed,
    Destroying,
    Destroyed,
}

#[derive(Debug)]
pub(crate) struct State {
    pub phase: Phase,
    /// Executions that are pending or running.
    pub open: usize,
    pub table: Table,
    /// The newest plan that was made for it.
    pub plan: Arc<Plan>,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub live: Option<Live>,
}

/// An instance and what it was started with.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub instance: Arc<dyn Instance>,
    pub plan: Arc<Plan>,
    /// Set when it is of no more use.
    pub lost: Arc<AtomicBool>,
}

impl Live {
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

impl Inner {
    pub fn new(
        agent: AgentId,
        id: SessionId,
        config: SessionConfig,
        created: Timestamp,
        plan: Plan,
    ) -> Self {
        Self {
            owner: Owner { agent, session: id },
            config,
            created,
            state: Mutex::new(State {
                phase: Phase::Provisioning,
                open: 0,
                table: Table::default(),
                plan: Arc::new(plan),
            }),
            slot: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Takes the name, if it is free.
    pub fn register(self: &Arc<Self>, shared: &Shared) -> Result<()> {
        let mut sessions = lock(&shared.sessions);
        let key = (self.owner.agent.clone(), self.owner.session.clone());
        if sessions.contains_key(&key) {
            return Err(Error::SessionExists {
                session: self.owner.session.to_string(),
            });
        }
        sessions.insert(key, self.clone());
        Ok(())
    }

    /// Gives the name back.
    pub fn unregister(&self, shared: &Shared) {
        let key = (self.owner.agent.clone(), self.owner.session.clone());
        let mut sessions = lock(&shared.sessions);
        if sessions
            .get(&key)
            .is_some_and(|other| std::ptr::eq(other.as_ref(), self))
        {
            sessions.remove(&key);
        }
    }

    pub fn abandon(&self, shared: &Shared) {
        self.unregister(shared);
        lock(&self.state).phase = Phase::Destroyed;
        self.changed.notify_waiters();
    }

    pub fn status(&self) -> SessionStatus {
        let state = lock(&self.state);
        match state.phase {
            Phase::Provisioning => SessionStatus::Provisioning,
            Phase::Failed => SessionStatus::Failed,
            Phase::Destroying => SessionStatus::Destroying,
            Phase::Destroyed => SessionStatus::Destroyed,
            Phase::Open if state.open > 0 => SessionStatus::Executing,
            Phase::Open => SessionStatus::Ready,
        }
    }

    pub fn info(&self, backend: &str) -> SessionInfo {
        SessionInfo {
            agent: self.owner.agent.clone(),
            id: self.owner.session.clone(),
            status: self.status(),
            created: self.created,
            backend: backend.into(),
            layers: 0,
            bytes: 0,
        }
    }

    pub fn gone(&self) -> Error {
        Error::NoSession {
            agent: self.owner.agent.to_string(),
            session: self.owner.session.to_string(),
        }
    }

    /// Moves between phases, unless the session is being destroyed: that wins.
    fn enter(&self, phase: Phase) -> Result<()> {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Destroying | Phase::Destroyed) {
            return Err(self.gone());
        }
        state.phase = phase;
        Ok(())
    }

    /// The instance, started if there is none.
    pub async fn live(&self, shared: &Shared) -> Result<Live> {
        let mut slot = self.slot.lock().await;
        self.live_in(&mut slot, shared).await
    }

    pub async fn live_in(&self, slot: &mut Slot, shared: &Shared) -> Result<Live> {
        if lock(&self.state).doomed() {
            return Err(self.gone());
        }
        if let Some(live) = slot.live.as_ref().filter(|live| !live.is_lost()) {
            return Ok(live.clone());
        }
        if let Some(lost) = slot.live.take() {
            lost.instance.destroy().await?;
        }
        self.enter(Phase::Provisioning)?;
        let started = self.start_instance(shared).await;
        let phase = if started.is_ok() {
            Phase::Open
        } else {
            Phase::Failed
        };
        let entered = self.enter(phase);
        let live = started?;
        // Kept also if the session is doomed: whoever destroys it waits for this slot.
        slot.live = Some(live.clone());
        entered?;
        Ok(live)
    }

    async fn start_instance(&self, shared: &Shared) -> Result<Live> {
        let plan = Plan::make(&self.config, shared.backend.as_ref(), Vec::new())?;
        let instance: Arc<dyn Instance> = shared.backend.create(&plan).await?.into();
        let plan = Arc::new(plan);
        lock(&self.state).plan = plan.clone();
        Ok(Live {
            instance,
            plan,
            lost: Arc::default(),
        })
    }
}

impl State {
    pub fn doomed(&self) -> bool {
        matches!(self.phase, Phase::Destroying | Phase::Destroyed)
    }
}

/// A place in the session's table, given back whatever happens.
pub(crate) struct Ticket {
    inner: Arc<Inner>,
    pub id: ExecutionId,
    finished: bool,
}

impl Ticket {
    pub fn take(inner: &Arc<Inner>, control: mpsc::UnboundedSender<ExecCommand>) -> Result<Self> {
        let id = ExecutionId::random();
        let mut state = lock(&inner.state);
        if state.doomed() {
            return Err(inner.gone());
        }
        state.open += 1;
        state.table.add(&id, control);
        Ok(Self {
            inner: inner.clone(),
            id,
            finished: false,
        })
    }

    pub fn started(&self) {
        lock(&self.inner.state).table.started(&self.id);
    }

    pub fn finish(&mut self, result: &Result<Report>) {
        self.settle(result.as_ref());
    }

    pub fn fail(&mut self, error: &Error) {
        self.settle(Err(error));
    }

    fn settle(&mut self, result: Result<&Report, &Error>) {
        self.finished = true;
        let mut state = lock(&self.inner.state);
        state.table.finish(&self.id, result);
        state.open -= 1;
        drop(state);
        self.inner.changed.notify_waiters();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            self.fail(&Error::InstanceLost("the execution was abandoned".into()));
        }
    }
}
