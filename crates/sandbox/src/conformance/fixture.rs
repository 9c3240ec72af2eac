//! What every case needs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{
    AgentId, Backend, CheckpointName, Control, Error, Language, Limit, Outcome, Report, Request,
    Sandbox, Session, SessionConfig, SessionId, Strength,
};

/// A backend to be tried, and a folder for what the cases keep.
#[derive(Clone, Debug)]
pub struct Fixture {
    backend: Arc<dyn Backend>,
    folder: PathBuf,
    config: SessionConfig,
    open_folders: bool,
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
            return Err($crate::conformance::fixture::Stop::Failed(format!($($message)+)));
        }
    }};
}

macro_rules! check_eq {
    ($found:expr, $expected:expr $(,)?) => {
        match (&$found, &$expected) {
            (found, expected) => {
                if found != expected {
                    return Err($crate::conformance::fixture::Stop::Failed(format!(
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
    pub fn new(backend: Arc<dyn Backend>, folder: impl Into<PathBuf>) -> Self {
        Self {
            backend,
            folder: folder.into(),
            config: SessionConfig::default(),
            open_folders: false,
        }
    }

    /// Lets everybody write to folders of the host, for backends that can't show them under another
    /// owner.
    #[must_use]
    pub fn with_open_folders(self) -> Self {
        Self {
            open_folders: true,
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

    /// Skips what the backend does not enforce.
    pub(super) fn needs(&self, control: Control) -> Done {
        let controls = self.backend.controls_for(&self.config);
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

    pub(super) fn for_case(&self, name: &str) -> Self {
        let folder = self.folder.join(name.replace("::", "-"));
        Self {
            backend: self.backend.clone(),
            folder,
            config: self.config.clone(),
            open_folders: self.open_folders,
        }
    }

    /// Sessions that live in this process alone.
    pub(super) fn sandbox(&self) -> Done<Sandbox> {
        Ok(Sandbox::builder(self.backend.clone()).build()?)
    }

    /// Sessions on disk. Called again, it is another process as far as locks know.
    pub(super) fn process(&self) -> Done<Sandbox> {
        let state = self.state();
        Ok(Sandbox::builder(self.backend.clone())
            .state_dir(state)
            .build()?)
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// An empty folder of the host.
    pub(super) fn host_folder(&self, name: &str) -> Done<PathBuf> {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&path)?;
        if self.open_folders {
            std::fs::set_permissions(&path, Permissions::from_mode(0o777))?;
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
    pub(super) fn limit<T>(&self, control: Control, value: T) -> Done<Limit<T>> {
        let controls = self.backend.controls_for(&self.config);
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

pub(super) fn outcome(report: Report) -> Done<Outcome> {
    report
        .outcome
        .ok_or_else(|| Stop::Failed("there is no outcome".into()))
}

/// What a script wrote; it must succeed.
pub(super) async fn text(session: &Session, script: &str) -> Done<String> {
    let outcome = outcome(run(session, sh(script)).await?)?;
    let stdout = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    if outcome.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
    Err(Stop::Failed(format!(
        "`{script}` ended with {} {:?}: {stdout}{stderr}",
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
            Ok(report) => outcome(report),
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
        check!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
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
