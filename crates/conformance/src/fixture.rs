//! What every case needs.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_sandbox::backend::StateKind;
use brig_sandbox::{
    AgentId, Backend, CheckpointName, Control, Controls, Error, Language, Limit, Outcome, Report,
    Request, Sandbox, SandboxBuilder, Session, SessionConfig, SessionId, Strength,
};
use tempfile::TempDir;

use crate::program::{Step, shell};

/// A backend to be tried, and a directory for what a case keeps.
#[derive(Clone, Debug)]
pub struct Fixture {
    backend: Arc<dyn Backend>,
    folder: Arc<TempDir>,
    config: SessionConfig,
    folder_owner: Option<u32>,
    counts_late: bool,
    programs: fn(&[Step]) -> Request,
    usage: bool,
    variables: &'static [&'static str],
    /// The only reasons to skip a case, if they are known.
    pub(super) reasons: Option<&'static [&'static str]>,
}

/// Why a case ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(String),
    Skipped(String),
}

impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.to_string())
    }
}

pub(super) type Done<T = ()> = Result<T, Stop>;

pub(super) fn skip<T>(why: impl Into<String>) -> Done<T> {
    Err(Stop::Skipped(why.into()))
}

/// Fails the case with what was expected and what was found.
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            return Err($crate::fixture::Stop::Failed(format!($($message)+)));
        }
    }};
}

macro_rules! check_eq {
    ($found:expr, $expected:expr $(,)?) => {
        match (&$found, &$expected) {
            (found, expected) => {
                if found != expected {
                    return Err($crate::fixture::Stop::Failed(format!(
                        "line {}: {} is {found:?}, not {expected:?}",
                        line!(),
                        stringify!($found),
                    )));
                }
            }
        }
    };
}

pub(super) use {check, check_eq};

impl Fixture {
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            folder: Arc::new(tempfile::tempdir().expect("a folder")),
            config: SessionConfig::default(),
            folder_owner: None,
            counts_late: false,
            programs: shell,
            usage: true,
            variables: &[],
            reasons: None,
        }
    }

    /// Root gives host directories to this user, for backends that never run as root and can't show a
    /// directory of root under another owner.
    #[must_use]
    pub fn with_folder_owner(self, uid: u32) -> Self {
        Self {
            folder_owner: Some(uid),
            ..self
        }
    }

    /// Processes are not refused but counted, so more than the limit may run for a moment.
    #[must_use]
    pub fn with_late_count(self) -> Self {
        Self {
            counts_late: true,
            ..self
        }
    }

    pub(crate) fn counts_late(&self) -> bool {
        self.counts_late
    }

    /// How a backend without a Linux userland runs the programs of the cases.
    #[must_use]
    pub fn with_programs(self, programs: fn(&[Step]) -> Request) -> Self {
        Self { programs, ..self }
    }

    /// For a backend that does not measure the peak of memory.
    #[must_use]
    pub fn without_usage(self) -> Self {
        Self {
            usage: false,
            ..self
        }
    }

    /// Variables that this backend sets in every execution, and no other does.
    #[must_use]
    pub fn with_variables(self, variables: &'static [&'static str]) -> Self {
        Self { variables, ..self }
    }

    pub(super) fn variables(&self) -> &'static [&'static str] {
        self.variables
    }

    pub(super) fn needs_usage(&self) -> Done {
        match self.usage {
            true => Ok(()),
            false => skip("usage is not measured in full here"),
        }
    }

    /// Fails cases that are skipped for a reason without one of these texts in it.
    #[must_use]
    pub fn with_reasons(self, reasons: &'static [&'static str]) -> Self {
        Self {
            reasons: Some(reasons),
            ..self
        }
    }

    /// What all sessions of the cases start from, such as an image.
    #[must_use]
    pub fn with_config(self, config: SessionConfig) -> Self {
        Self { config, ..self }
    }

    pub(super) fn config(&self) -> SessionConfig {
        self.config.clone()
    }

    /// A program that every backend can run.
    pub(super) fn program(&self, steps: impl AsRef<[Step]>) -> Request {
        (self.programs)(steps.as_ref())
    }

    /// What a program wrote; it must succeed.
    pub(super) async fn output(
        &self,
        session: &Session,
        steps: impl AsRef<[Step]>,
    ) -> Done<String> {
        let steps = steps.as_ref();
        succeeded(session, self.program(steps), &format!("{steps:?}")).await
    }

    /// Whether the backend enforces it, for cases that can try more then.
    pub(super) async fn has(&self, control: Control) -> Done<bool> {
        let controls = self.controls().await?;
        Ok(controls.strength(control) == Strength::Enforced)
    }

    /// A program that runs for a minute and does not end when it is asked to.
    pub(super) async fn stubborn(&self) -> Done<Request> {
        Ok(match self.has(Control::LinuxUserland).await? {
            true => sh("trap '' TERM; sleep 60"),
            false => self.program([Step::SleepMs(60_000)]),
        })
    }

    /// Whether saved files are directories of this machine.
    pub(super) async fn saves_directories(&self) -> Done<bool> {
        let state = self.backend.probe(&self.config).await?.state;
        Ok(state != StateKind::Snapshots)
    }

    async fn controls(&self) -> Done<Controls> {
        Ok(self.backend.probe(&self.config).await?.controls)
    }

    /// Skips what the backend does not enforce.
    pub(super) async fn needs(&self, control: Control) -> Done {
        let controls = self.controls().await?;
        match controls.get(control) {
            Some(state) if state.strength == Strength::Enforced => Ok(()),
            Some(state) => skip(format!(
                "{} is not enforced here: {}",
                control.name(),
                state.by
            )),
            None => skip(format!("{} is absent here", control.name())),
        }
    }

    pub(super) fn builder(&self) -> SandboxBuilder {
        Sandbox::builder(self.backend.clone())
    }

    /// Sessions that live in this process alone.
    pub(super) fn sandbox(&self) -> Done<Sandbox> {
        Ok(self.builder().build()?)
    }

    /// Sessions on disk. Called again, it is another process as far as locks know.
    pub(super) fn process(&self) -> Done<Sandbox> {
        let state = self.state();
        Ok(Sandbox::builder(self.backend.clone())
            .state_dir(state)
            .build()?)
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// An empty host directory.
    pub(super) fn host_folder(&self, name: &str) -> Done<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path)?;
        if rustix::process::geteuid().is_root() {
            chown(&path, self.folder_owner, self.folder_owner)?;
        }
        Ok(path)
    }

    pub(super) async fn session(&self) -> Done<Session> {
        self.session_with(self.config()).await
    }

    pub(super) async fn session_with(&self, config: SessionConfig) -> Done<Session> {
        Ok(self
            .sandbox()?
            .create_session(&agent(), None, config)
            .await?)
    }

    /// Asked for where it can be held, a default where it is only watched.
    pub(super) async fn limit<T>(&self, control: Control, value: T) -> Done<Limit<T>> {
        let controls = self.controls().await?;
        match controls.strength(control) {
            Strength::Enforced => Ok(Limit::asked(value)),
            Strength::Observed => Ok(Limit::default_of(value)),
            Strength::Absent => skip(format!("{} is absent here", control.name())),
        }
    }
}

pub(super) fn agent() -> AgentId {
    "conformance".parse().unwrap_or_else(|_| unreachable!())
}

pub(super) fn session_id(name: &str) -> Done<SessionId> {
    Ok(name.parse()?)
}

pub(super) fn checkpoint(name: &str) -> Done<CheckpointName> {
    Ok(name.parse()?)
}

/// A script for the shell that every userland has.
pub(super) fn sh(script: &str) -> Request {
    Request::command(["/bin/sh", "-c", script])
}

pub(super) async fn run(session: &Session, request: Request) -> Done<Report> {
    Ok(session.start(request).await?.wait().await?)
}

/// What a script wrote; it must succeed.
pub(super) async fn text(session: &Session, script: &str) -> Done<String> {
    succeeded(session, sh(script), script).await
}

async fn succeeded(session: &Session, request: Request, what: &str) -> Done<String> {
    let outcome = run(session, request).await?.outcome;
    let stdout = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    if outcome.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
    Err(Stop::Failed(format!(
        "`{what}` ended with {} {:?}: {stdout}{stderr}",
        outcome.exit_code, outcome.killed
    )))
}

/// Code in a language that may not be installed.
pub(super) async fn code(session: &Session, language: Language, source: &str) -> Done<Outcome> {
    code_of(session, Request::code(language, source)).await
}

pub(super) async fn code_of(session: &Session, request: Request) -> Done<Outcome> {
    match session.start(request).await {
        Ok(running) => match running.wait().await {
            Ok(report) => Ok(report.outcome),
            Err(error) => absent(error),
        },
        Err(error) => absent(error),
    }
}

fn absent<T>(error: Error) -> Done<T> {
    match error {
        Error::NoInterpreter { .. } => skip(error.to_string()),
        other => Err(other.into()),
    }
}

/// Waits, but not forever.
pub(super) async fn until(what: &str, reached: impl Fn() -> bool) -> Done {
    let begun = Instant::now();
    while !reached() {
        check!(begun.elapsed() < Duration::from_secs(120), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The first file of that name in any layer of the folder.
pub(super) fn find_in_layers(state: &Path, name: &str) -> Option<PathBuf> {
    let layers = std::fs::read_dir(state.join("layers")).ok()?.flatten();
    layers
        .map(|layer| layer.path().join(name))
        .find(|path| path.exists())
}
