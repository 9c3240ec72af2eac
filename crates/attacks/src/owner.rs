//! A process that owns a sandbox and can be killed, starved or lied to, unlike the process of the
//! tests. It is told what to do by one JSON argument and answers with JSON lines.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use brig_sandbox::request::Work;
use brig_sandbox::{
    AgentId, Backend, Error, Event, Language, Report, Request, Sandbox, SessionConfig,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fence::{bounded, with_fence};
use crate::host;
use crate::leftovers;
use crate::probe::{Attempts, Probe};

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum Task {
    /// Runs a probe once and answers with what came of it.
    Run {
        config: Box<SessionConfig>,
        source: String,
        args: String,
    },
    /// Runs a command once and answers with what came of it.
    Command {
        config: Box<SessionConfig>,
        words: Vec<String>,
    },
    /// Starts a probe, says `started`, and waits for it.
    Hold {
        config: Box<SessionConfig>,
        source: String,
        args: String,
        state: Option<String>,
    },
    /// Makes and destroys sandboxes; answers with what there was before and after.
    Cycles { count: usize },
    /// Makes sandboxes while descriptors run out at every step.
    Starve { most: u64 },
    /// Many sandboxes at once, some of which cannot be made.
    Crowd { count: usize },
}

impl Task {
    pub fn run(config: SessionConfig, probe: &Probe, args: &Value) -> Self {
        Task::Run {
            config: Box::new(config),
            source: probe.source(),
            args: with_fence(args),
        }
    }

    pub fn hold(config: SessionConfig, probe: &Probe, args: &Value, state: Option<&Path>) -> Self {
        Task::Hold {
            config: Box::new(config),
            source: probe.source(),
            args: with_fence(args),
            state: state.map(|path| path.to_str().unwrap().to_owned()),
        }
    }
}

/// The answer to [`Task::Run`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    pub error: Option<String>,
    pub message: String,
    pub exit_code: i32,
    pub killed: Option<String>,
    pub stdout: String,
    pub stderr: String,
    pub stdout_total: u64,
    pub stderr_total: u64,
    pub stdout_kept: u64,
    pub stderr_kept: u64,
    pub duration_ms: u64,
    pub waived: Vec<String>,
    /// The most memory the owner itself ever had.
    pub owner_peak_kib: u64,
}

impl Answer {
    pub fn attempts(&self) -> Attempts {
        Attempts::parse(self.stdout.as_bytes(), self.stderr.as_bytes())
    }

    fn of(result: Result<Report, Error>) -> Self {
        let owner_peak_kib = host::status_number(std::process::id(), "VmHWM").unwrap_or(0);
        match result {
            Err(error) => Self {
                error: Some(error.code().to_owned()),
                message: error.to_string(),
                owner_peak_kib,
                ..Self::default()
            },
            Ok(report) => {
                let outcome = &report.outcome;
                Self {
                    exit_code: outcome.exit_code,
                    killed: outcome
                        .killed
                        .as_ref()
                        .map(|reason| reason.name().to_owned()),
                    stdout: String::from_utf8_lossy(&outcome.stdout.bytes).into_owned(),
                    stderr: String::from_utf8_lossy(&outcome.stderr.bytes).into_owned(),
                    stdout_total: outcome.stdout.total,
                    stderr_total: outcome.stderr.total,
                    stdout_kept: outcome.stdout.bytes.len() as u64,
                    stderr_kept: outcome.stderr.bytes.len() as u64,
                    duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
                    waived: report.waived.iter().map(|c| c.name().to_owned()).collect(),
                    owner_peak_kib,
                    ..Self::default()
                }
            }
        }
    }
}

/// What the program `owner` does.
pub async fn serve(backend: Arc<dyn Backend>, task: Task) {
    match task {
        Task::Run {
            config,
            source,
            args,
        } => {
            let result = match Sandbox::builder(backend).build() {
                Ok(sandbox) => {
                    sandbox
                        .run_once(&agent(), *config, code(source, args))
                        .await
                }
                Err(error) => Err(error),
            };
            say(&Answer::of(result));
        }
        Task::Command { config, words } => {
            let result = match Sandbox::builder(backend).build() {
                Ok(sandbox) => {
                    let request = Request::command(words);
                    sandbox.run_once(&agent(), *config, request).await
                }
                Err(error) => Err(error),
            };
            say(&Answer::of(result));
        }
        Task::Hold {
            config,
            source,
            args,
            state,
        } => {
            let mut builder = Sandbox::builder(backend);
            if let Some(state) = state {
                builder = builder.state_dir(state);
            }
            let sandbox = builder.build().unwrap();
            let session = sandbox
                .create_session(&agent(), None, *config)
                .await
                .unwrap();
            let mut request = code(source, args);
            request.stream = true;
            let mut running = session.start(request).await.unwrap();
            while let Some(event) = running.next_event().await {
                if let Event::Stdout(_) = event {
                    say(&json!({"started": true}));
                }
            }
            say(&Answer::of(running.wait().await));
        }
        Task::Cycles { count } => say(&leftovers::cycles(backend, count).await),
        Task::Starve { most } => say(&leftovers::starve(backend, most).await),
        Task::Crowd { count } => say(&leftovers::crowd(backend, count).await),
    }
}

/// Runs the owner to its end, through `words` if there are any.
pub fn run(owner: &[OsString], through: &[OsString], task: &Task, env: &[(&str, &str)]) -> Answer {
    serde_json::from_value(ask(owner, through, task, env)).unwrap()
}

pub fn ask(owner: &[OsString], through: &[OsString], task: &Task, env: &[(&str, &str)]) -> Value {
    let mut words = through.to_vec();
    words.extend_from_slice(owner);
    words.push(serde_json::to_string(task).unwrap().into());
    let temporary = host::open_scratch();
    let mut command = bounded(900, words);
    command.env("TMPDIR", temporary.path());
    let output = command
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|_| {
        panic!(
            "the owner did not answer: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Starts the owner directly, so that its number is the one to kill, and waits until the probe
/// has said something.
pub fn start(owner: &[OsString], task: &Task, temporary: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(&owner[0])
        .args(&owner[1..])
        .env("TMPDIR", temporary)
        .arg(serde_json::to_string(task).unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("started"), "the owner said: {line}");
    (child, stdout)
}

fn code(source: String, args: String) -> Request {
    let mut request = Request::code(Language::Python, source.into_bytes());
    if let Work::Code { args: words, .. } = &mut request.work {
        words.push(args);
    }
    request
}

fn agent() -> AgentId {
    crate::target::agent()
}

fn say(answer: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer).unwrap()).unwrap();
    out.flush().unwrap();
}
