//! The way in.

mod inspect;
mod network;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use brig_audit::{Event as Fact, MemoryLog, Recorder};
use brig_egress::Layer;
use brig_policy::{AllowAll, Decider};
use jiff::Timestamp;
use serde::Serialize;

pub use inspect::SessionDetails;

use crate::session::Inner;
use crate::shared::{Owner, Shared, lock};
use crate::store::{Place, Store, blocking};
use crate::{
    AgentId, Backend, Error, Report, Request, Result, Running, Session, SessionConfig, SessionId,
    SessionStatus, once,
};

/// One backend, one policy, one record, and the sessions in between. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub struct SandboxBuilder {
    backend: Arc<dyn Backend>,
    state_dir: Option<PathBuf>,
    private_dir: Option<PathBuf>,
    user_network: Option<Layer>,
    decider: Arc<dyn Decider>,
    recorder: Arc<dyn Recorder>,
}

impl SandboxBuilder {
    /// Where sessions are kept. Without it they live as long as the process.
    pub fn state_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(path.into());
        self
    }

    /// A folder that no mount may show in a sandbox, such as that of the recorder. The folder
    /// for sessions is one anyway.
    pub fn private_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.private_dir = Some(path.into());
        self
    }

    /// What the user allows and blocks now. It takes the place of what a session was created with,
    /// so that what was taken back is taken back everywhere.
    pub fn user_network(mut self, layer: Layer) -> Self {
        self.user_network = Some(layer);
        self
    }

    /// Who decides. Without it, everything is allowed within the limits of its session.
    pub fn decider(mut self, decider: Arc<dyn Decider>) -> Self {
        self.decider = decider;
        self
    }

    /// Where records are kept. Without it, the newest stay in memory.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    pub fn build(self) -> Result<Sandbox> {
        let place = match self.state_dir {
            Some(path) => Place::Durable(Store::open(&path)?),
            None => Place::Temporary(OnceLock::new()),
        };
        Ok(Sandbox {
            shared: Arc::new(Shared {
                backend: self.backend,
                decider: self.decider,
                recorder: self.recorder,
                private: self.private_dir,
                user_network: self.user_network,
                place,
                sessions: Mutex::default(),
            }),
        })
    }
}

/// One line of a list of sessions.
#[derive(Clone, Debug, Serialize)]
pub struct SessionInfo {
    pub agent: AgentId,
    pub id: SessionId,
    pub status: SessionStatus,
    pub created: Timestamp,
    pub backend: String,
    /// Saved states that its files are stacked from.
    pub layers: usize,
    /// What its saved files take.
    pub bytes: u64,
}

impl Sandbox {
    pub fn builder(backend: Arc<dyn Backend>) -> SandboxBuilder {
        SandboxBuilder {
            backend,
            state_dir: None,
            private_dir: None,
            user_network: None,
            decider: Arc::new(AllowAll),
            recorder: Arc::new(MemoryLog::default()),
        }
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Makes a session and starts its instance. Without an id, it gets a random one.
    pub async fn create_session(
        &self,
        agent: &AgentId,
        id: Option<SessionId>,
        config: SessionConfig,
    ) -> Result<Session> {
        let id = id.unwrap_or_else(SessionId::random);
        Session::create(self.shared.clone(), agent.clone(), id, config).await
    }

    /// The session of this process, or one from disk.
    pub async fn open_session(&self, agent: &AgentId, id: &SessionId) -> Result<Session> {
        Session::open(self.shared.clone(), agent, id).await
    }

    /// All sessions of this process, and all that are kept on disk.
    pub fn list_sessions(&self) -> Result<Vec<SessionInfo>> {
        let live: Vec<Arc<Inner>> = lock(&self.shared.sessions).values().cloned().collect();
        let mut list: Vec<SessionInfo> = match self.shared.place.durable() {
            Some(store) => store
                .names()
                .map_err(|error| Error::io("list of sessions", error))?
                .iter()
                .map(|(agent, id)| self.info(store, agent, id))
                .collect(),
            None => live.iter().map(|inner| self.info_of(inner)).collect(),
        };
        list.sort_by(|a, b| (&a.agent, &a.id).cmp(&(&b.agent, &b.id)));
        Ok(list)
    }

    fn info(&self, store: &Store, agent: &AgentId, id: &SessionId) -> SessionInfo {
        let record = store.read(agent, id).ok();
        SessionInfo {
            agent: agent.clone(),
            id: id.clone(),
            status: match record {
                Some(_) => self.session_status(agent, id),
                None => SessionStatus::Failed,
            },
            created: record
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |record| record.created),
            backend: record
                .as_ref()
                .map_or_else(String::new, |record| record.backend.clone()),
            layers: record.as_ref().map_or(0, |record| record.layers.len()),
            bytes: record.map_or(0, |record| record.bytes() + store.head_bytes(&record)),
        }
    }

    fn info_of(&self, inner: &Inner) -> SessionInfo {
        SessionInfo {
            agent: inner.owner.agent.clone(),
            id: inner.owner.session.clone(),
            status: inner.status(),
            created: inner.created,
            backend: self.shared.backend.name().into(),
            layers: 0,
            bytes: 0,
        }
    }

    /// [`SessionStatus::Destroyed`] if there is no such session.
    pub fn session_status(&self, agent: &AgentId, id: &SessionId) -> SessionStatus {
        let inner = lock(&self.shared.sessions)
            .get(&(agent.clone(), id.clone()))
            .cloned();
        match (inner, self.shared.place.durable()) {
            (Some(inner), _) => inner.status_in(&self.shared),
            (None, Some(store)) if store.is_busy(agent, id) => SessionStatus::Executing,
            (None, Some(store)) if store.exists(agent, id) => SessionStatus::Ready,
            _ => SessionStatus::Destroyed,
        }
    }

    /// Ends and removes a session, and wins over everything that runs in it, in whatever process.
    /// An unknown session is gone already.
    pub async fn destroy_session(&self, agent: &AgentId, id: &SessionId) -> Result<()> {
        let inner = lock(&self.shared.sessions)
            .get(&(agent.clone(), id.clone()))
            .cloned();
        if let Some(inner) = inner {
            return Session::of(self.shared.clone(), inner).destroy().await;
        }
        let Some(store) = self.shared.place.durable().cloned() else {
            return Ok(());
        };
        let owner = Owner {
            agent: agent.clone(),
            session: id.clone(),
        };
        let (agent, id) = (agent.clone(), id.clone());
        if blocking(move || store.destroy(&agent, &id)).await? {
            self.shared.record(&owner, None, Fact::SessionDestroyed)?;
        }
        Ok(())
    }

    /// A session for one execution. Nothing is written to disk.
    pub async fn run_once(
        &self,
        agent: &AgentId,
        config: SessionConfig,
        request: Request,
    ) -> Result<Report> {
        self.start_once(agent, config, request).await?.wait().await
    }

    /// The same, with output as it comes.
    pub async fn start_once(
        &self,
        agent: &AgentId,
        config: SessionConfig,
        request: Request,
    ) -> Result<Running> {
        once::start(self.shared.clone(), agent, config, request).await
    }
}
