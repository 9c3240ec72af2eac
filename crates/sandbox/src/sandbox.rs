//! The entry point of the library.

mod inspect;
mod network;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use brig_audit::{Event as Fact, MemoryLog, Recorder};
use brig_egress::Layer;
use brig_policy::{AllowAll, Decider};
use brig_tools::ToolRegistry;
use jiff::Timestamp;
use serde::Serialize;

pub use inspect::SessionDetails;

use crate::approvals::{ApprovalAnswer, ApprovalFunction, ApprovalRequest, Approver};
use crate::directories::Private;
use crate::session::Inner;
use crate::sessions::{destroyed_but, record_destroyed};
use crate::shared::{SessionKey, Shared, lock};
use crate::store::{Storage, Store, blocking};
use crate::{
    AgentId, Backend, Error, ExecutionHandle, IntoBackend, Plan, Report, Request, Result, Session,
    SessionConfig, SessionId, SessionStatus, once,
};

/// Runs code on one backend, under one policy, with one record; creates and finds sessions. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

/// Builds a [`Sandbox`]; see [`Sandbox::builder`].
#[derive(Debug)]
pub struct SandboxBuilder {
    backend: Arc<dyn Backend>,
    state_dir: Option<PathBuf>,
    private_dir: Option<PathBuf>,
    out_of_reach: Vec<Private>,
    user_network: Option<Layer>,
    decider: Arc<dyn Decider>,
    recorder: Arc<dyn Recorder>,
    on_plan: Option<OnPlan>,
    tools: ToolRegistry,
    approver: Option<Arc<dyn Approver>>,
}

/// Called with every plan before anything is started by it.
#[derive(Clone)]
pub(crate) struct OnPlan(Arc<dyn Fn(&Plan) + Send + Sync>);

impl OnPlan {
    pub(crate) fn call(&self, plan: &Plan) {
        (self.0)(plan);
    }
}

impl std::fmt::Debug for OnPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnPlan")
    }
}

impl SandboxBuilder {
    /// Called with what a sandbox will show of the host and enforce, before it runs.
    pub fn on_plan(mut self, call: impl Fn(&Plan) + Send + Sync + 'static) -> Self {
        self.on_plan = Some(OnPlan(Arc::new(call)));
        self
    }

    /// Where sessions are kept. Without it they live as long as the process.
    pub fn state_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(path.into());
        self
    }

    /// A directory that no mount may show in a sandbox, such as that of the recorder. The state
    /// directory never is shown.
    pub fn private_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.private_dir = Some(path.into());
        self
    }

    /// Another directory that no mount may show or contain. The user's configuration and state of
    /// Brig ([`crate::config_dir`], [`crate::state_dir`]) always stay out of reach.
    pub fn keep_out_of_reach(mut self, path: impl Into<PathBuf>) -> Self {
        let why = "it contains a directory that is kept out of reach";
        self.out_of_reach.push(Private::new(path, why));
        self
    }

    /// What the user allows and blocks now. Replaces what a session was created with, so that what was
    /// withdrawn is withdrawn everywhere.
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

    /// Who is asked where a policy requires an approval. Without it, that is a denial.
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// The same, with a function.
    pub fn approve_with<F, A>(self, ask: F) -> Self
    where
        F: Fn(ApprovalRequest) -> A + Send + Sync + 'static,
        A: Future<Output = ApprovalAnswer> + Send + 'static,
    {
        self.approver(Arc::new(ApprovalFunction::new(ask)))
    }

    /// Functions of the host that code may call, as far as its policies list them.
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.tools = tools;
        self
    }

    /// Opens the state directory, if there is one.
    pub fn build(self) -> Result<Sandbox> {
        let storage = match self.state_dir {
            Some(path) => Storage::Durable(Store::open(&path)?),
            None => Storage::Temporary(OnceLock::new()),
        };
        Ok(Sandbox {
            shared: Arc::new(Shared {
                backend: self.backend,
                decider: self.decider,
                recorder: self.recorder,
                approver: self.approver,
                private: self.private_dir,
                out_of_reach: self.out_of_reach,
                user_network: self.user_network,
                on_plan: self.on_plan,
                tools: self.tools,
                storage,
                sessions: Mutex::default(),
            }),
        })
    }
}

/// One line of a list of sessions.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The agent it belongs to.
    pub agent: AgentId,
    /// Its name.
    pub id: SessionId,
    /// Its state.
    pub status: SessionStatus,
    /// When it was created.
    pub created: Timestamp,
    /// The backend it was created with.
    pub backend: String,
    /// Saved states that its files are stacked from.
    pub layers: usize,
    /// What its saved files take.
    pub bytes: u64,
}

impl Sandbox {
    /// A sandbox on this backend.
    pub fn builder(backend: impl IntoBackend) -> SandboxBuilder {
        SandboxBuilder {
            backend: backend.into_backend(),
            state_dir: None,
            private_dir: None,
            out_of_reach: Private::of_user(),
            user_network: None,
            decider: Arc::new(AllowAll),
            recorder: Arc::new(MemoryLog::default()),
            on_plan: None,
            tools: ToolRegistry::default(),
            approver: None,
        }
    }

    /// The backend that runs everything.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// What a new session with this config would have, with the tools that are registered here.
    ///
    /// # Errors
    ///
    /// If no session can be created with it.
    pub async fn plan(&self, config: &SessionConfig) -> Result<Plan> {
        self.shared.plan(config).await
    }

    /// Creates a session and starts its instance. Without an id, it gets a random one.
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
        let mut list: Vec<SessionInfo> = match self.shared.storage.durable() {
            Some(store) => store
                .listing()
                .map_err(|error| Error::io("list of sessions", error))?
                .names
                .iter()
                .map(|(agent, id)| self.info(store, agent, id))
                .collect(),
            None => live.iter().map(|inner| self.info_of(inner)).collect(),
        };
        list.sort_by(|a, b| (&a.agent, &a.id).cmp(&(&b.agent, &b.id)));
        Ok(list)
    }

    fn info(&self, store: &Store, agent: &AgentId, id: &SessionId) -> SessionInfo {
        SessionInfo::read(store, agent, id, self.session_status(agent, id))
    }

    fn info_of(&self, inner: &Inner) -> SessionInfo {
        SessionInfo {
            agent: inner.key.agent.clone(),
            id: inner.key.session.clone(),
            status: inner.status(),
            created: inner.created,
            backend: self.shared.backend.id().to_string(),
            layers: 0,
            bytes: 0,
        }
    }

    /// [`SessionStatus::Destroyed`] if there is no such session.
    pub fn session_status(&self, agent: &AgentId, id: &SessionId) -> SessionStatus {
        let inner = self.shared.session(agent, id);
        match (inner, self.shared.storage.durable()) {
            (Some(inner), _) => inner.status_in(&self.shared),
            (None, Some(store)) => store.status(agent, id),
            (None, None) => SessionStatus::Destroyed,
        }
    }

    /// Ends and removes a session, with everything that runs in it, in any process. Does nothing if
    /// there is no such session.
    pub async fn destroy_session(&self, agent: &AgentId, id: &SessionId) -> Result<()> {
        let inner = self.shared.session(agent, id);
        if let Some(inner) = inner {
            return Session::of(self.shared.clone(), inner).destroy().await;
        }
        let Some(store) = self.shared.storage.durable().cloned() else {
            return Ok(());
        };
        let key = SessionKey::new(agent, id);
        let kept = store.at_backend(agent, id);
        self.shared.is_own(&key, kept.as_ref())?;
        let there = store.has(agent, id);
        if there.map_err(|error| Error::io(format!("session `{id}`"), error))? {
            // Nothing is lost that is not on record.
            self.shared.record(&key, Fact::SessionDestroyRequested)?;
        }
        let directory = store.session_path(agent, id);
        self.shared.backend.forget(&directory).await;
        let own = (agent.clone(), id.clone(), store.clone());
        let destroyed = blocking(move || own.2.destroy(&own.0, &own.1)).await;
        record_destroyed(self.shared.recorder.as_ref(), &key, destroyed)?;
        let removed = self.shared.remove_at_backend(&key, &store, kept).await;
        removed.map_err(|error| destroyed_but(&key, error))
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
    ) -> Result<ExecutionHandle> {
        once::start(self.shared.clone(), agent, config, request).await
    }
}
