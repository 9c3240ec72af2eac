//! The way in.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use brig_audit::{MemoryLog, Recorder};
use brig_policy::{AllowAll, Decider};
use jiff::Timestamp;
use serde::Serialize;

use crate::shared::{Shared, lock};
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
    decider: Arc<dyn Decider>,
    recorder: Arc<dyn Recorder>,
}

impl SandboxBuilder {
    /// Where sessions are kept. Without it they live as long as the process.
    pub fn state_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(path.into());
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
        Ok(Sandbox {
            shared: Arc::new(Shared {
                backend: self.backend,
                decider: self.decider,
                recorder: self.recorder,
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
        let inner = lock(&self.shared.sessions)
            .get(&(agent.clone(), id.clone()))
            .cloned();
        match inner {
            Some(inner) => Ok(Session::of(self.shared.clone(), inner)),
            None => Err(Error::NoSession {
                agent: agent.to_string(),
                session: id.to_string(),
            }),
        }
    }

    pub fn list_sessions(&self) -> Result<Vec<SessionInfo>> {
        let sessions = lock(&self.shared.sessions);
        let backend = self.shared.backend.name();
        let mut list: Vec<SessionInfo> = sessions.values().map(|s| s.info(backend)).collect();
        list.sort_by(|a, b| (&a.agent, &a.id).cmp(&(&b.agent, &b.id)));
        Ok(list)
    }

    /// [`SessionStatus::Destroyed`] if there is no such session.
    pub fn session_status(&self, agent: &AgentId, id: &SessionId) -> SessionStatus {
        let sessions = lock(&self.shared.sessions);
        sessions
            .get(&(agent.clone(), id.clone()))
            .map_or(SessionStatus::Destroyed, |inner| inner.status())
    }

    /// Ends and removes a session, and wins over everything that runs in it. An unknown session
    /// is gone already.
    pub async fn destroy_session(&self, agent: &AgentId, id: &SessionId) -> Result<()> {
        match self.open_session(agent, id).await {
            Ok(session) => session.destroy().await,
            Err(Error::NoSession { .. }) => Ok(()),
            Err(error) => Err(error),
        }
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
