//! The state behind all handles to one session.

use std::sync::{Arc, Mutex};

use brig_egress::{Layer, LayerKind};
use jiff::Timestamp;
use tokio::sync::Notify;

use super::busy::BusyFlag;
use super::live::Slot;
use crate::execution::table::Table;
use crate::shared::{SessionKey, Shared, lock};
use crate::{Error, Plan, Result, SessionConfig, SessionStatus};

#[derive(Debug)]
pub(crate) struct Inner {
    pub key: SessionKey,
    pub config: SessionConfig,
    pub created: Timestamp,
    /// Whether it is kept on disk and outlives the process.
    pub durable: bool,
    /// Never held across an await.
    pub state: Mutex<State>,
    /// The instance and the directory. Held while either of them is opened, replaced or ended.
    pub slot: tokio::sync::Mutex<Slot>,
    /// Held while files are mirrored to disk: one at a time.
    pub saving: tokio::sync::Mutex<()>,
    /// Held while the session is destroyed.
    pub destroying: tokio::sync::Mutex<()>,
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
    /// File transfers under way.
    pub transfers: usize,
    /// Executions that were asked for, of a session that lives in this process alone.
    steps: u64,
    pub table: Table,
    /// What was changed of its network, of a session that lives in this process alone.
    pub network: Layer,
    /// The newest plan that was made for it.
    pub plan: Arc<Plan>,
    /// Shows other processes that something runs.
    pub busy: BusyFlag,
    /// This process ends the session, and all that runs in it.
    pub destroyed_here: bool,
    /// An instance was lost that had the only copy of the files.
    pub files_lost: bool,
}

impl State {
    pub(crate) fn is_destroyed(&self) -> bool {
        matches!(self.phase, Phase::Destroying | Phase::Destroyed)
    }

    pub(crate) fn next_step(&mut self) -> u64 {
        self.steps += 1;
        self.steps - 1
    }
}

impl Inner {
    pub(crate) fn new(
        key: SessionKey,
        config: SessionConfig,
        created: Timestamp,
        durable: bool,
        plan: Plan,
    ) -> Self {
        Self {
            key,
            config,
            created,
            durable,
            state: Mutex::new(State {
                phase: Phase::Provisioning,
                open: 0,
                transfers: 0,
                steps: 0,
                table: Table::default(),
                network: Layer::new(LayerKind::Session),
                plan: Arc::new(plan),
                busy: BusyFlag::default(),
                destroyed_here: false,
                files_lost: false,
            }),
            slot: tokio::sync::Mutex::default(),
            saving: tokio::sync::Mutex::default(),
            destroying: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Takes the name in this process, if it is free.
    pub(crate) fn register(self: &Arc<Self>, shared: &Shared) -> Result<()> {
        let mut sessions = lock(&shared.sessions);
        if sessions.contains_key(&self.key) {
            return Err(Error::SessionExists {
                session: self.key.session.to_string(),
            });
        }
        sessions.insert(self.key.clone(), self.clone());
        Ok(())
    }

    /// Gives the name back, and lets nobody in any more.
    pub(crate) fn abandon(&self, shared: &Shared) {
        let mut sessions = lock(&shared.sessions);
        if sessions
            .get(&self.key)
            .is_some_and(|other| std::ptr::eq(other.as_ref(), self))
        {
            sessions.remove(&self.key);
        }
        drop(sessions);
        lock(&self.state).phase = Phase::Destroyed;
        self.changed.notify_waiters();
    }

    pub(crate) fn status(&self) -> SessionStatus {
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

    pub(crate) fn gone(&self) -> Error {
        Error::NoSession {
            agent: self.key.agent.to_string(),
            session: self.key.session.to_string(),
        }
    }

    pub(crate) fn busy(&self, problem: impl Into<String>) -> Error {
        Error::SessionBusy {
            session: self.key.session.to_string(),
            problem: problem.into(),
        }
    }

    /// Moves between phases, unless the session is being destroyed: that wins.
    pub(crate) fn enter(&self, phase: Phase) -> Result<()> {
        let mut state = lock(&self.state);
        if state.is_destroyed() {
            return Err(self.gone());
        }
        state.phase = phase;
        Ok(())
    }

    /// Refuses while something runs. The slot is held, so nothing can begin meanwhile.
    pub(crate) fn idle(&self) -> Result<()> {
        let state = lock(&self.state);
        match (state.open, state.transfers) {
            (0, 0) => Ok(()),
            (0, _) => Err(self.busy("files are being transferred")),
            (1, _) => Err(self.busy("an execution is running")),
            (count, _) => Err(self.busy(format!("{count} executions are running"))),
        }
    }

    /// Whether its files are mirrored to disk after every execution.
    pub(crate) fn keeps_files(&self) -> bool {
        self.durable && self.config.workspace.is_none()
    }
}
