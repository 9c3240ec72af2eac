use std::fmt;
use std::time::Duration;

use brig_policy::Extra;
use tokio::io::AsyncRead;

use crate::request::{TerminalSize, Work};
use crate::{Error, ExecRequest, Language, Result, SessionConfig, env, limits};

/// What a caller asks to be run.
pub struct Request {
    pub work: Work,
    /// Added to the session's own variables; the same filter holds for both.
    pub env: Vec<(String, String)>,
    /// Inside the sandbox; relative to the workspace.
    pub cwd: Option<String>,
    pub terminal: Option<TerminalSize>,
    /// Standard input. Without it, the program reads an empty one.
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Takes the place of the session's default; of a limit that was asked for, the stricter holds.
    pub timeout: Option<Duration>,
    /// Whether output is delivered as it comes, through [`crate::Running::next_event`].
    pub stream: bool,
    /// What the caller adds to the facts that the decision is made over.
    pub facts: Extra,
}

impl Request {
    /// Source code for a fresh interpreter.
    pub fn code(language: Language, source: impl Into<Vec<u8>>) -> Self {
        Self::new(Work::Code {
            language,
            source: source.into(),
            args: Vec::new(),
        })
    }

    /// A program and its arguments.
    pub fn command<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self::new(Work::Command(argv.into_iter().map(Into::into).collect()))
    }

    pub fn new(work: Work) -> Self {
        Self {
            work,
            env: Vec::new(),
            cwd: None,
            terminal: None,
            stdin: None,
            timeout: None,
            stream: false,
            facts: Extra::default(),
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

/// A request that was checked against its session.
pub(crate) struct Prepared {
    pub exec: ExecRequest,
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub timeout: Duration,
    pub stream: bool,
    pub facts: Extra,
}

impl Request {
    pub(crate) fn prepare(self, config: &SessionConfig) -> Result<Prepared> {
        check_work(&self.work)?;
        if let Some(cwd) = &self.cwd {
            no_nul("cwd", cwd)?;
        }
        config.check_variables(&self.env)?;
        let own = config.limits.timeout;
        let timeout = match self.timeout {
            Some(given) if own.asked => limits::TIMEOUT.check(given)?.min(own.value),
            Some(given) => limits::TIMEOUT.check(given)?,
            None => own.value,
        };
        Ok(Prepared {
            exec: ExecRequest {
                work: self.work,
                env: env::merge(&config.env, self.env)?,
                cwd: self.cwd,
                terminal: self.terminal,
                stdin: self.stdin.is_some(),
            },
            stdin: self.stdin,
            timeout,
            stream: self.stream,
            facts: self.facts,
        })
    }
}

fn check_work(work: &Work) -> Result<()> {
    let (what, argv) = match work {
        Work::Code { args, .. } => ("arguments", args),
        Work::Command(argv) => ("command", argv),
    };
    if matches!(work, Work::Command(argv) if argv.first().is_none_or(String::is_empty)) {
        return Err(Error::InvalidConfig {
            what,
            problem: "no program is given".into(),
        });
    }
    argv.iter().try_for_each(|argument| no_nul(what, argument))
}

fn no_nul(what: &'static str, text: &str) -> Result<()> {
    if text.contains('\0') {
        return Err(Error::InvalidConfig {
            what,
            problem: "a NUL byte is not allowed".into(),
        });
    }
    Ok(())
}
