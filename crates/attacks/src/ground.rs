//! Where an attack takes place: one backend, with a lifecycle and a log of its own.

use std::path::PathBuf;
use std::sync::Arc;

use brig_audit::MemoryLog;
use brig_sandbox::config::MountSpec;
use brig_sandbox::request::Work;
use brig_sandbox::{
    AgentId, Backend, Control, Language, Limits, Report, Request, Result, Sandbox, Session,
    SessionConfig, Strength,
};
use serde_json::Value;

use crate::fence::with_fence;
use crate::probe::{Attempts, Probe};

#[derive(Debug)]
pub struct Ground {
    pub backend: Arc<dyn Backend>,
    pub sandbox: Sandbox,
    pub log: Arc<MemoryLog>,
    /// The program that owns a sandbox in a process of its own; see [`crate::owner`].
    pub owner: PathBuf,
    /// What nothing here can hold, and is given up everywhere.
    pub waived: Vec<Control>,
    /// What an execution sees of its sandbox while it runs one program: that and its keeper.
    pub own_processes: usize,
}

impl Ground {
    pub fn new(backend: Arc<dyn Backend>, owner: impl Into<PathBuf>) -> Self {
        let log = Arc::new(MemoryLog::default());
        let sandbox = Sandbox::builder(Arc::clone(&backend))
            .recorder(log.clone())
            .build()
            .unwrap();
        Self {
            backend,
            sandbox,
            log,
            owner: owner.into(),
            waived: Vec::new(),
            own_processes: 2,
        }
    }

    /// Without these controls, which this backend does not have.
    #[must_use]
    pub fn without(mut self, waived: &[Control]) -> Self {
        self.waived.extend(waived);
        self
    }

    pub fn config(&self, mut config: SessionConfig) -> SessionConfig {
        config.waive.extend(&self.waived);
        config
    }

    pub fn strength(&self, control: Control) -> Strength {
        self.backend.controls(&Limits::default()).strength(control)
    }

    pub fn enforces(&self, control: Control) -> bool {
        self.strength(control) == Strength::Enforced
    }

    pub async fn session(&self, config: SessionConfig) -> Session {
        self.sandbox
            .create_session(&agent(), None, self.config(config))
            .await
            .unwrap()
    }

    /// Runs a probe in a fresh sandbox that is gone afterwards.
    pub async fn run(&self, probe: &Probe, args: &Value) -> Attempts {
        self.run_with(SessionConfig::default(), probe, args).await
    }

    pub async fn run_with(&self, config: SessionConfig, probe: &Probe, args: &Value) -> Attempts {
        attempts(&self.report(config, probe, args).await.unwrap()).whole()
    }

    pub async fn report(
        &self,
        config: SessionConfig,
        probe: &Probe,
        args: &Value,
    ) -> Result<Report> {
        self.sandbox
            .run_once(&agent(), self.config(config), request(probe, args))
            .await
    }
}

pub fn agent() -> AgentId {
    "attacker".parse().unwrap()
}

pub fn request(probe: &Probe, args: &Value) -> Request {
    let mut request = Request::code(Language::Python, probe.source().into_bytes());
    if let Work::Code { args: words, .. } = &mut request.work {
        words.push(with_fence(args));
    }
    request
}

/// Runs a probe in a session that goes on.
pub async fn run_in(session: &Session, probe: &Probe, args: &Value) -> Attempts {
    let running = session.start(request(probe, args)).await.unwrap();
    attempts(&running.wait().await.unwrap()).whole()
}

pub fn attempts(report: &Report) -> Attempts {
    let outcome = report.outcome.as_ref().unwrap();
    let mut said = outcome.stderr.bytes.clone();
    if let Some(reason) = &outcome.killed {
        said.extend_from_slice(format!("ended by Brig: {reason:?}").as_bytes());
    }
    Attempts::parse(&outcome.stdout.bytes, &said)
}

/// A folder of the host, mounted.
pub fn mount(source: impl Into<PathBuf>, target: &str, writable: bool) -> SessionConfig {
    SessionConfig {
        mounts: vec![mount_spec(source, target, writable)],
        ..SessionConfig::default()
    }
}

pub fn mount_spec(source: impl Into<PathBuf>, target: &str, writable: bool) -> MountSpec {
    MountSpec {
        source: source.into(),
        target: target.into(),
        writable,
    }
}
