//! Puts a run together: backend, policies, network rules, audit log and state directory. Every command
//! that starts code does it here, and passes in what differs.

use std::io::ErrorKind;
use std::sync::Arc;

use brig_egress::{Layer, LayerKind, Rule};
use brig_policy::Compat;
use brig_sandbox::{
    AgentId, Backend, BackendId, Error, PolicyFiles, Request, Sandbox, SandboxBuilder, Session,
    SessionConfig, SessionId, Sessions,
};

use crate::approvals::Asked;
use crate::args::{SessionName, ToolArgs};
use crate::drive::{Attachment, Finished, drive};
use crate::exit::LimitOrigins;
use crate::failure::Failure;
use crate::policy::load;
use crate::tools::{ToolRequest, Tools};
use crate::{backend, launch, log, network, recorder, state, user};

/// What differs between runs.
#[derive(Debug)]
pub(crate) struct RunSpec {
    pub agent: AgentId,
    /// The name of the backend.
    pub backend: String,
    /// As the flags set it, before policies apply.
    pub config: SessionConfig,
    pub policies: PolicyFiles,
    pub compat: Compat,
    /// Network rules beside those of the policies: [`brig_config::layers`].
    pub layers: Vec<Layer>,
    pub tools: ToolRequest,
    /// Who is asked where a policy requires an approval.
    pub approver: Asked,
    pub storage: Storage,
}

/// Whether anything is kept after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    None,
    Session,
}

/// A run that is ready to start.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub agent: AgentId,
    pub config: SessionConfig,
    sandbox: Sandbox,
    tools: Tools,
    /// Rules that were not confirmed by the user before, and may deserve a warning.
    new_rules: Vec<Rule>,
    /// Whether controls were required by a flag.
    requires: bool,
}

/// Reads the policies and checks that the run cannot change them. Shows their warnings.
pub(crate) async fn assemble(spec: RunSpec) -> Result<Assembled, Failure> {
    if let Some(both) = spec.config.needs().intersection(&spec.config.waive).next() {
        let name = both.name();
        return Err(Failure::usage(format!(
            "`{name}` is both required (--require) and waived (--waive)"
        ))
        .with_hint("leave one of them out"));
    }
    let backend = backend::choose(&spec.backend).await?;
    log::debug(|| format!("backend {}", backend.id()));
    let requires = !spec.config.needs().is_empty();
    let under = spec.config.under_files(&spec.policies, spec.compat);
    let (mut config, warnings) = under.map_err(load::refused)?;
    load::show(&warnings);
    log::debug(|| match config.policies() {
        Some(policies) => format!("policy {}", policies.digest()),
        None => "no policy".into(),
    });
    let new_rules = (spec.layers.iter())
        .filter(|layer| matches!(layer.kind, LayerKind::Agent | LayerKind::Run))
        .flat_map(|layer| layer.allow.iter().cloned())
        .collect();
    config.network.layers.extend(spec.layers);
    let tools = Tools::for_run(&spec.tools, &config).await?;
    let builder = builder(backend, spec.storage)?.tools(tools.registry.clone());
    let builder = asking(builder, spec.approver);
    Ok(Assembled {
        agent: spec.agent,
        config,
        sandbox: launch::announced_with_limits(builder).build()?,
        tools,
        new_rules,
        requires,
    })
}

impl Assembled {
    /// Runs it in a sandbox that is removed afterwards.
    pub(crate) async fn run_once(
        self,
        request: Request,
        attachment: Attachment,
    ) -> Result<Finished, Failure> {
        network::announce(&self.config.network, &self.new_rules);
        let limits = LimitOrigins::of(&self.config);
        let start = self.sandbox.start_once(&self.agent, self.config, request);
        let finished = drive(start, attachment).await;
        self.tools.close().await;
        let finished = finished.map_err(|failure| failure.if_required(self.requires))?;
        Ok(Finished { limits, ..finished })
    }

    /// For who starts executions later, and more than one.
    #[cfg(feature = "mcp")]
    pub(crate) fn into_parts(self) -> (AgentId, SessionConfig, Sandbox, Tools) {
        network::announce(&self.config.network, &self.new_rules);
        (self.agent, self.config, self.sandbox, self.tools)
    }

    pub(crate) async fn create_session(self, id: Option<SessionId>) -> Result<Session, Failure> {
        network::announce(&self.config.network, &self.new_rules);
        let created = self.sandbox.create_session(&self.agent, id, self.config);
        let created = created.await.map_err(Failure::from);
        self.tools.close().await;
        created.map_err(|failure| failure.if_required(self.requires))
    }
}

/// All sessions, for what needs no backend.
pub(crate) fn sessions() -> Result<Sessions, Failure> {
    Ok(Sessions::open(&state::directory()?, recorder::open()?)?)
}

/// The same for what creates no session: where there is none, no directory is made.
pub(crate) fn existing_sessions() -> Result<Option<Sessions>, Failure> {
    // What can't be seen may be there.
    match state::directory()?.join("sessions").symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        _ => sessions().map(Some),
    }
}

/// A session by its name, and its agent.
pub(crate) fn find_session(name: &SessionName) -> Result<(Sessions, AgentId), Failure> {
    let unknown = || Error::SessionUnknown(name.to_string());
    let sessions = existing_sessions()?.ok_or_else(unknown)?;
    let agent = sessions.find(name.agent.as_ref(), &name.id)?;
    Ok((sessions, agent))
}

/// A sandbox of a session's own backend, for what only that can do.
pub(crate) async fn sandbox_of(backend: &BackendId) -> Result<Sandbox, Failure> {
    let backend = backend::choose(&backend.to_string()).await?;
    Ok(builder(backend, Storage::Session)?.build()?)
}

/// Opens a session for its files and checkpoints.
pub(crate) async fn open_session(name: &SessionName) -> Result<Session, Failure> {
    open(name, |builder| builder).await
}

/// Opens a session to run something in it. The user's current lists of hosts replace those from when
/// it was created.
/// The tools are those of the flags and of the user's configuration of now.
pub(crate) async fn open_session_to_run(
    name: &SessionName,
    flags: &ToolArgs,
    approver: Asked,
) -> Result<(Session, Tools), Failure> {
    let user = user::load(&user::store()?)?;
    let layer = brig_config::user_layer(&user);
    let sessions = sessions()?;
    let agent = sessions.find(name.agent.as_ref(), &name.id)?;
    let config = sessions.inspect(&agent, &name.id)?.config;
    let request = ToolRequest {
        flags: flags.clone(),
        user: user.tools().clone(),
        ..ToolRequest::default()
    };
    let tools = Tools::for_run(&request, &config).await?;
    let registry = tools.registry.clone();
    let with =
        |builder: SandboxBuilder| asking(builder.user_network(layer).tools(registry), approver);
    match open(name, with).await {
        Ok(session) => Ok((session, tools)),
        Err(failure) => {
            tools.close().await;
            Err(failure)
        }
    }
}

fn asking(builder: SandboxBuilder, approver: Asked) -> SandboxBuilder {
    match approver {
        Some(approver) => builder.approver(approver),
        None => builder,
    }
}

async fn open(
    name: &SessionName,
    with: impl FnOnce(SandboxBuilder) -> SandboxBuilder,
) -> Result<Session, Failure> {
    let sessions = sessions()?;
    let agent = sessions.find(name.agent.as_ref(), &name.id)?;
    let id = sessions.backend(&agent, &name.id)?;
    let backend = backend::choose(&id.to_string()).await?;
    let sandbox = with(builder(backend, Storage::Session)?).build()?;
    Ok(sandbox.open_session(&agent, &name.id).await?)
}

fn builder(backend: Arc<dyn Backend>, storage: Storage) -> Result<SandboxBuilder, Failure> {
    let state = state::writable()?;
    let builder = Sandbox::builder(backend).recorder(recorder::open()?);
    let builder = match storage {
        Storage::None => builder.private_dir(state),
        Storage::Session => builder.state_dir(state),
    };
    Ok(launch::announced(builder))
}
