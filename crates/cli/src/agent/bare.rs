//! An agent without a sandbox: with all that the user may do. Said aloud, and on record.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use brig_audit::receipt::command_digest;
use brig_audit::{Event, Record, Recorder};
use brig_config::Run;
use brig_policy::{Action, Decider, PolicySet, Request};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::args::AgentRunArgs;
use crate::failure::{self, Failure};
use crate::interrupt::Interrupts;
use crate::policy::load;
use crate::{evidence, exit, state};

pub async fn run(args: &AgentRunArgs, run: Run, command: Vec<String>) -> Result<u8, Failure> {
    refuse_what_cannot_hold(args)?;
    let book = Book {
        recorder: evidence::recorder(&state::folder()?)?,
        agent: match &args.config.agent {
            Some(agent) => agent.to_string(),
            None => run.agent.name.clone(),
        },
    };
    ask_policy(&book, args, &run, &command)?;
    failure::warning(&format!(
        "NO SANDBOX: `{}` runs with all that you may do yourself (said by: {})",
        command[0], run.choice.by
    ));
    if !run.agent.network_allowlist.is_empty() || run.policy.is_some() {
        failure::warning("its limits and its rules for the network hold only in a sandbox");
    }
    book.keep(Event::Unsandboxed {
        by: run.choice.by.to_string(),
        program: command[0].clone(),
        command_digest: command_digest(&command),
    })?;
    let mut interrupts =
        Interrupts::new().map_err(|error| Failure::new("io.failed", failure::describe(&error)))?;
    let stdin = match args.interactive || args.tty {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(stdin)
        .spawn()
        .map_err(|error| cannot_start(&book, &command[0], &error))?;
    let status = wait(&mut child, &mut interrupts).await?;
    let code = code(status);
    book.keep(Event::ExecutionFinished {
        exit_code: Some(code.into()),
        kill_reason: None,
    })?;
    Ok(code)
}

/// What was asked for and can't be had without a sandbox is not left out silently.
fn refuse_what_cannot_hold(args: &AgentRunArgs) -> Result<(), Failure> {
    let flag = match (args.json, &args.cwd) {
        (true, _) => Some("--json"),
        (_, Some(_)) => Some("--cwd"),
        _ => args.config.sandbox_flag(),
    };
    match flag {
        None => Ok(()),
        Some(flag) => Err(Failure::usage(format!(
            "{flag} needs a sandbox, and this agent runs without one"
        ))
        .with_hint("add --sandbox, or leave the flag out")),
    }
}

/// A policy can't hold its limits here, but what it denies is denied.
fn ask_policy(
    book: &Book,
    args: &AgentRunArgs,
    run: &Run,
    command: &[String],
) -> Result<(), Failure> {
    let mut documents = load::documents(&args.policy, args.compat.compat())?;
    documents.extend(run.policy.clone());
    if documents.is_empty() {
        return Ok(());
    }
    let mut request = Request::new(&book.agent, Action::Run);
    request.command = Some(command);
    let decision = PolicySet::new(documents).decide(&request);
    book.keep(Event::Decided {
        allowed: decision.allowed,
        code: decision.code.clone(),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
    })?;
    match decision.allowed {
        true => Ok(()),
        false => Err(Failure::denial(&decision)),
    }
}

fn cannot_start(book: &Book, program: &str, error: &std::io::Error) -> Failure {
    let message = format!("cannot run `{program}`: {}", failure::describe(error));
    let event = Event::ExecutionFailed {
        code: "run.cannot-start".into(),
        message: message.clone(),
    };
    if let Err(failure) = book.keep(event) {
        return failure;
    }
    let exit = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    Failure::new("run.cannot-start", message).with_exit(exit)
}

/// Ctrl-C reaches the agent from the terminal. What was sent to Brig alone is passed on.
async fn wait(child: &mut Child, interrupts: &mut Interrupts) -> Result<ExitStatus, Failure> {
    loop {
        tokio::select! {
            status = child.wait() => {
                return status
                    .map_err(|error| Failure::new("io.failed", failure::describe(&error)));
            }
            signal = interrupts.next() => {
                let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
                if let Some(id) = id && signal != Signal::INT.as_raw() {
                    let _ = Signal::from_named_raw(signal).map(|signal| kill_process(id, signal));
                }
            }
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED),
        (None, Some(signal)) => exit::of_signal(signal),
        (None, None) => exit::FAILED,
    }
}

struct Book {
    recorder: Arc<dyn Recorder>,
    agent: String,
}

impl Book {
    /// Keeps a record, and waits until it is safe: what can't be recorded is not run.
    fn keep(&self, event: Event) -> Result<(), Failure> {
        let record = Record {
            at: Timestamp::now(),
            agent: self.agent.clone(),
            session: String::new(),
            execution: None,
            event,
        };
        (self.recorder.append(record))
            .map_err(|error| Failure::new("audit.unwritable", error.to_string()))
    }
}
