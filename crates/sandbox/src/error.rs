use brig_policy::Problem;
use brig_reason::ReasonCode;

use crate::backend::Unavailable;
use crate::{BackendId, Control, Denial, Interrupted};

/// The result of a call to this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no report. A program that fails is not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name of an agent, a session, an execution or a checkpoint is invalid.
    #[error(
        "invalid {label} `{given}`: must be 1 to 128 of a-z A-Z 0-9 _ . -, and start with a letter or digit"
    )]
    InvalidName {
        /// What it names.
        label: &'static str,
        /// The text that was given.
        given: String,
    },
    /// A part of the config or of the request is invalid.
    #[error("invalid {what}: {problem}")]
    InvalidConfig {
        /// The part.
        what: &'static str,
        /// Why it is invalid.
        problem: String,
    },
    /// A file or directory of the host must not be shown in a sandbox.
    #[error("mount `{path}` is refused: {problem}")]
    MountRefused {
        /// On the host.
        path: String,
        /// Why it is refused.
        problem: String,
    },
    /// The backend can't enforce what was requested.
    #[error("{}", unenforceable(.0))]
    Unenforceable(Vec<Unmet>),
    /// The sandbox could change a file that Brig decides by.
    #[error(
        "`{file}` is read by Brig for its decisions, but the sandbox could change it: \
         `{directory}` is writable"
    )]
    PolicyWritable {
        /// The file.
        file: String,
        /// The writable mount that it is in.
        directory: String,
    },
    /// A policy has errors.
    #[error("policy {} is invalid; nothing was run", quoted(.files))]
    PolicyInvalid {
        /// The files with errors.
        files: Vec<String>,
        /// Of all files, warnings included.
        problems: Vec<Problem>,
    },
    /// No policy of a directory applies.
    #[error("{0}")]
    NoGovernance(String),
    /// A policy denied the execution.
    #[error("denied by policy: {}", .0.reason())]
    Denied(Box<Denial>),
    /// There is no such session.
    #[error("no session `{session}` of agent `{agent}`")]
    NoSession {
        /// The agent it would belong to.
        agent: String,
        /// Its name.
        session: String,
    },
    /// There is no session of this name.
    #[error("no session `{0}`")]
    SessionUnknown(String),
    /// The name alone does not say which session is meant.
    #[error("more than one agent has a session `{id}`")]
    SessionAmbiguous {
        /// The name.
        id: String,
        /// The agents that have one.
        agents: Vec<String>,
    },
    /// The name is taken.
    #[error("session `{session}` already exists")]
    SessionExists {
        /// Its name.
        session: String,
    },
    /// Only the backend of the session can do it.
    #[error("invalid backend: session `{session}` was created with the {backend} backend")]
    OtherBackend {
        /// Its name.
        session: String,
        /// The one it was created on.
        backend: BackendId,
    },
    /// Something else uses the session.
    #[error("session `{session}` is busy: {problem}")]
    SessionBusy {
        /// Its name.
        session: String,
        /// What uses it.
        problem: String,
    },
    /// There is no such execution, or it ended long ago.
    #[error("no execution `{0}`")]
    NoExecution(String),
    /// There is no such checkpoint.
    #[error("no checkpoint `{0}`")]
    NoCheckpoint(String),
    /// The name is taken.
    #[error("checkpoint `{name}` already exists")]
    CheckpointExists {
        /// Its name.
        name: String,
    },
    /// The files of a checkpoint are not those that were saved.
    #[error("checkpoint `{name}` was changed after it was saved: {problem}")]
    CheckpointTampered {
        /// Its name.
        name: String,
        /// What differs.
        problem: String,
    },
    /// The sandbox has no interpreter for the language.
    #[error("no interpreter for {language}: {problem}")]
    NoInterpreter {
        /// The language.
        language: &'static str,
        /// Where it was looked for.
        problem: String,
    },
    /// The program could not be started.
    #[error("cannot run `{program}`: {problem}")]
    CannotRun {
        /// The program.
        program: String,
        /// As shells exit: 127 if it was not found, 126 if it can't be executed, otherwise 125.
        exit_code: i32,
        /// Why.
        problem: String,
    },
    /// A file of the workspace could not be read or written.
    #[error("file `{path}`: {problem}")]
    File {
        /// In the workspace.
        path: String,
        /// Why.
        problem: String,
    },
    /// The backend can't be used here.
    #[error("the {backend} backend cannot be used here: {cause}")]
    Unavailable {
        /// Its name.
        backend: BackendId,
        /// Why, and what would change it.
        cause: Unavailable,
    },
    /// A service that runs sandboxes refused, or did not answer.
    #[error("{step}: {problem}")]
    Engine {
        /// The stable code.
        code: ReasonCode,
        /// What was attempted.
        step: String,
        /// Why it failed.
        problem: String,
        /// What to do next.
        hint: Option<String>,
    },
    /// The sandbox could not be set up.
    #[error("the sandbox could not be set up: {step}: {problem}")]
    Setup {
        /// What was attempted.
        step: String,
        /// Why it failed.
        problem: String,
    },
    /// The instance ended while it was in use.
    #[error("the sandbox was lost: {0}")]
    InstanceLost(String),
    /// The instance ended while it ran something, or what it left could not be saved or recorded.
    #[error("{}", .0.error)]
    Interrupted(Box<Interrupted>),
    /// The execution took place, but what it changed in the session's files could not be saved.
    #[error("the execution took place, but its changes to the session's files were not saved: {0}")]
    NotSaved(Box<Error>),
    /// The operation took place, but what had to follow it failed.
    #[error("{done}, but {problem}: {source}")]
    Incomplete {
        /// What took place.
        done: String,
        /// What that means.
        problem: &'static str,
        /// What failed.
        source: Box<Error>,
    },
    /// The guest sent something that it must not send.
    #[error("the guest broke the protocol: {0}")]
    Protocol(String),
    /// The audit log can't be written.
    #[error(transparent)]
    Record(#[from] brig_audit::RecordError),
    /// The operating system reported an error.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The error.
        source: std::io::Error,
    },
}

/// The problem of a mount whose source is not there.
pub(crate) const MISSING: &str = "it does not exist";

/// A control that was requested and can't be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmet {
    /// The control.
    pub control: Control,
    /// Why it can't be enforced.
    pub problem: String,
    /// How to fix it, if that is known.
    pub fix: Option<String>,
}

impl Error {
    /// A stable code: the same in errors, receipts and JSON output.
    pub fn code(&self) -> &'static str {
        self.reason().code()
    }

    /// The code as a value of its enum.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Error::InvalidName { .. } => ReasonCode::InputName,
            Error::InvalidConfig { .. } | Error::OtherBackend { .. } => ReasonCode::InputConfig,
            Error::MountRefused { .. } => ReasonCode::InputMount,
            Error::Unenforceable(_) => ReasonCode::PolicyUnenforceable,
            Error::PolicyWritable { .. } => ReasonCode::PolicyWritable,
            Error::PolicyInvalid { .. } => ReasonCode::PolicyInvalid,
            Error::NoGovernance(_) => ReasonCode::PolicyNoGovernance,
            Error::Denied(_) => ReasonCode::PolicyDenied,
            Error::NoSession { .. } | Error::SessionUnknown(_) => ReasonCode::SessionUnknown,
            Error::SessionAmbiguous { .. } => ReasonCode::SessionAmbiguous,
            Error::SessionExists { .. } => ReasonCode::SessionExists,
            Error::SessionBusy { .. } => ReasonCode::SessionBusy,
            Error::NoExecution(_) => ReasonCode::ExecutionUnknown,
            Error::NoCheckpoint(_) => ReasonCode::CheckpointUnknown,
            Error::CheckpointExists { .. } => ReasonCode::CheckpointExists,
            Error::CheckpointTampered { .. } => ReasonCode::CheckpointTampered,
            Error::NoInterpreter { .. } => ReasonCode::RunNoInterpreter,
            Error::CannotRun { .. } => ReasonCode::RunCannotStart,
            Error::File { .. } => ReasonCode::FileFailed,
            Error::Unavailable { cause, .. } => cause.code,
            Error::Engine { code, .. } => *code,
            Error::Setup { .. } => ReasonCode::BackendSetup,
            Error::InstanceLost(_) => ReasonCode::BackendLost,
            Error::Interrupted(interrupted) => interrupted.error.reason(),
            Error::NotSaved(_) => ReasonCode::SessionNotSaved,
            Error::Incomplete { .. } => ReasonCode::OperationIncomplete,
            Error::Protocol(_) => ReasonCode::BackendProtocol,
            Error::Record(_) => ReasonCode::AuditUnwritable,
            Error::Io { .. } => ReasonCode::IoFailed,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Unenforceable(unmet) => {
                let fixes: Vec<&str> = unmet.iter().filter_map(|u| u.fix.as_deref()).collect();
                let names: Vec<&str> = unmet.iter().map(|u| u.control.name()).collect();
                let waive = format!("accept the risk with --waive {}", names.join(","));
                Some(if fixes.is_empty() {
                    waive
                } else {
                    format!("{}; or {waive}", fixes.join("; "))
                })
            }
            Error::MountRefused { path, problem } if problem == MISSING => Some(format!(
                "create it first (mkdir -p {path}), or check the path"
            )),
            Error::Denied(denial) => Some(denial.hint()),
            Error::Unavailable { cause, .. } => cause.fix.clone(),
            Error::PolicyWritable { .. } => Some(
                "move it to another directory, or mount that directory read-only with --mount"
                    .into(),
            ),
            Error::SessionUnknown(_) => Some("run `brig session ls` to list them".into()),
            Error::SessionAmbiguous { id, agents } => {
                let names: Vec<String> = (agents.iter())
                    .map(|agent| format!("{agent}/{id}"))
                    .collect();
                Some(format!("use one of {}", names.join(", ")))
            }
            Error::NoGovernance(_) => {
                Some("set the path with --policy-path, or a policy with --policy".into())
            }
            Error::Engine { hint, .. } => hint.clone(),
            Error::NotSaved(error) => error.hint().or_else(|| {
                let full = matches!(
                    &**error,
                    Error::Io { source, .. } if matches!(
                        source.kind(),
                        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                    )
                );
                let next = match full {
                    true => "free disk space where sessions are kept (`brig doctor` shows where), and run it again",
                    false => "the saved files are as before it",
                };
                Some(next.into())
            }),
            Error::Incomplete { source, .. } => source.hint(),
            Error::Record(error) => error.hint().map(str::to_owned),
            _ => None,
        }
    }

    /// It is in place, but the disk did not confirm it.
    pub(crate) fn unconfirmed(done: String, source: std::io::Error) -> Self {
        Error::Incomplete {
            done,
            problem: "it may be lost if the machine loses power",
            source: Box::new(Error::io("sync of its directory", source)),
        }
    }

    /// An error of the operating system, and what was done.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Error::Io {
            what: what.into(),
            source: source.into(),
        }
    }
}

fn unenforceable(unmet: &[Unmet]) -> String {
    let parts: Vec<String> = unmet
        .iter()
        .map(|u| format!("{} ({})", u.control.name(), u.problem))
        .collect();
    format!("this backend cannot enforce: {}", parts.join(", "))
}

fn quoted(files: &[String]) -> String {
    let names: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
    names.join(", ")
}
