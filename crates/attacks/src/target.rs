//! What is attacked: one backend, with a lifecycle and a log of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_audit::MemoryLog;
use brig_sandbox::config::MountSpec;
use brig_sandbox::request::Work;
use brig_sandbox::{
    AgentId, Backend, Capabilities, Control, Language, Report, Request, Result, Sandbox, Session,
    SessionConfig, Strength,
};
use serde_json::{Value, json};

use crate::fence::with_fence;
use crate::probe::{Attempt, Attempts, Probe};
use crate::{host, probe};

#[derive(Debug)]
pub struct AttackTarget {
    pub backend: Arc<dyn Backend>,
    pub sandbox: Sandbox,
    pub log: Arc<MemoryLog>,
    /// The program that owns a sandbox in a process of its own, and its first arguments; see
    /// [`crate::owner`].
    pub owner: Vec<OsString>,
    /// Controls that this backend can't enforce, and that every test waives.
    pub waived: Vec<Control>,
    /// How many processes an execution sees while it runs one program: that and its keeper.
    pub own_processes: usize,
    /// Whether the sandbox has a kernel of its own, so that the host can't see its processes and objects, and
    /// everything takes longer.
    pub own_kernel: bool,
}

impl AttackTarget {
    pub fn new(backend: Arc<dyn Backend>, owner: impl Into<OsString>) -> Self {
        let log = Arc::new(MemoryLog::default());
        let sandbox = Sandbox::builder(Arc::clone(&backend))
            .recorder(log.clone())
            .build()
            .unwrap();
        Self {
            backend,
            sandbox,
            log,
            owner: vec![owner.into()],
            waived: Vec::new(),
            own_processes: 2,
            own_kernel: false,
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
        self.capabilities().controls.strength(control)
    }

    /// Asked on a thread of its own, so that attacks can ask wherever they are.
    pub fn capabilities(&self) -> Capabilities {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(self.backend.probe(&SessionConfig::default()))
        };
        let asked = std::thread::scope(|scope| scope.spawn(ask).join());
        asked.expect("no panic").expect("the backend can be used")
    }

    pub fn enforces(&self, control: Control) -> bool {
        self.strength(control) == Strength::Enforced
    }

    /// How long to wait for what takes this long natively.
    pub fn patience(&self, natively: Duration) -> Duration {
        if self.own_kernel {
            3 * natively
        } else {
            natively
        }
    }

    /// Excuses a positive control for a call that the sandbox's own kernel does not have.
    pub fn lacks(&self, attempt: &Attempt) -> Option<String> {
        let unknown = matches!(
            attempt.errno.as_deref(),
            Some("EINVAL" | "ENOSYS" | "ENOTSUP")
        );
        (self.own_kernel && unknown).then(|| "the sandbox's own kernel does not have it".into())
    }

    /// Whether a process with this name runs in a session: seen from outside, or otherwise from inside.
    pub async fn runs(&self, session: &Session, marker: &str) -> bool {
        if !self.own_kernel {
            return !host::processes_named(marker).is_empty();
        }
        let args = json!({"marker": marker});
        match session.start(request(&probe!("find"), &args)).await {
            Ok(running) => {
                let found = attempts(&running.wait().await.unwrap()).whole();
                found.ok("find by name")
            }
            // As far as can be seen from outside, the whole sandbox has ended.
            Err(error) => {
                assert_eq!(error.code(), "backend.lost", "{error}");
                self.left(marker)
            }
        }
    }

    /// Destroys a session after a fork bomb. gVisor of 2022 sometimes hangs for a minute then, and the engine
    /// removes it later.
    pub async fn clear_away(&self, session: Session) {
        match session.destroy().await {
            Err(error) if self.own_kernel && error.code() == "engine.timeout" => {
                eprintln!("after a storm: {error}");
            }
            destroyed => destroyed.unwrap(),
        }
    }

    /// Waits until that is so, or is no longer so.
    pub async fn until_runs(
        &self,
        session: &Session,
        marker: &str,
        wanted: bool,
        natively: Duration,
    ) -> bool {
        let (start, limit) = (Instant::now(), self.patience(natively));
        while self.runs(session, marker).await != wanted {
            if start.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Whether anything is left of a sandbox: a process with this name, or a kernel with it in its memory.
    pub fn left(&self, marker: &str) -> bool {
        if self.own_kernel {
            host::kernels_with(marker) > 0
        } else {
            !host::processes_named(marker).is_empty()
        }
    }

    pub async fn session(&self, config: SessionConfig) -> Session {
        self.sandbox
            .create_session(&agent(), None, self.config(config))
            .await
            .unwrap()
    }

    /// Runs a probe in a new sandbox, which is destroyed afterwards.
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

/// Runs a probe in an existing session.
pub async fn run_in(session: &Session, probe: &Probe, args: &Value) -> Attempts {
    let running = session.start(request(probe, args)).await.unwrap();
    attempts(&running.wait().await.unwrap()).whole()
}

pub fn attempts(report: &Report) -> Attempts {
    let outcome = &report.outcome;
    let mut said = outcome.stderr.bytes.clone();
    if let Some(reason) = &outcome.killed {
        said.extend_from_slice(format!("ended by Brig: {reason:?}").as_bytes());
    }
    Attempts::parse(&outcome.stdout.bytes, &said)
}

/// A mounted host directory.
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
