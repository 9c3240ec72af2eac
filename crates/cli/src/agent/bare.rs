//! An agent without a sandbox, with the permissions of the user. A warning is shown, and it is recorded.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use brig_audit::receipt::command_digest;
use brig_audit::{Event, Record, Recorder};
use brig_config::{Run, Store};
use brig_policy::{Action, Decider, Request};
use brig_reason::ReasonCode;
use brig_sandbox::SessionConfig;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::args::AgentRunArgs;
use crate::failure::{self, Failure};
use crate::interrupt::Interrupts;
use crate::policy::load;
use crate::{exit, recorder};

pub(crate) async fn run(
    args: &AgentRunArgs,
    run: Run,
    command: Vec<String>,
    store: &Store,
) -> Result<u8, Failure> {
    refuse_sandbox_flags(args)?;
    let audit = AuditTrail {
        recorder: recorder::open()?,
        agent: match &args.config.agent {
            Some(agent) => agent.to_string(),
            None => run.agent.name.clone(),
        },
    };
    ask_policy(&audit, args, &run, &command, store)?;
    failure::warning(&format!(
        "NO SANDBOX: `{}` runs with your own permissions (set by: {})",
        command[0], run.choice.by
    ));
    if run.agent.sandbox == Some(true) {
        failure::warning("its agent file asks for a sandbox");
    }
    let agent = &run.agent;
    let limited = !agent.network_allowlist.is_empty() || !agent.limits.is_empty();
    if limited || run.policy.is_some() {
        failure::warning("its limits and network rules are enforced only in a sandbox");
    }
    if !agent.mounts.is_empty() || !agent.env.is_empty() {
        failure::warning("its mounts and variables are set only in a sandbox");
    }
    audit.record(Event::Unsandboxed {
        by: run.choice.by.to_string(),
        program: command[0].clone(),
        command_digest: command_digest(&command),
    })?;
    let mut interrupts = Interrupts::new()
        .map_err(|error| Failure::new(ReasonCode::IoFailed, failure::describe(&error)))?;
    let stdin = match args.interactive || args.tty {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(stdin)
        .spawn()
        .map_err(|error| cannot_start(&audit, &command[0], &error))?;
    let status = wait(&mut child, &mut interrupts).await?;
    let code = code(status);
    audit.record(Event::ExecutionFinished {
        exit_code: Some(code.into()),
        kill_reason: None,
    })?;
    Ok(code)
}

/// A flag that has no effect without a sandbox is refused, not ignored.
fn refuse_sandbox_flags(args: &AgentRunArgs) -> Result<(), Failure> {
    let flag = match (args.json.is_some(), &args.cwd) {
        (true, _) => Some("--json".to_owned()),
        (_, Some(_)) => Some("--cwd".to_owned()),
        _ => args
            .tools
            .flag()
            .map(str::to_owned)
            .or_else(|| args.config.sandbox_flag()),
    };
    match flag {
        None => Ok(()),
        Some(flag) => Err(Failure::usage(format!(
            "{flag} needs a sandbox, and this agent runs without one"
        ))
        .with_hint("add --sandbox, or remove the flag")),
    }
}

/// The limits of a policy are not enforced here, but its decision is.
fn ask_policy(
    audit: &AuditTrail,
    args: &AgentRunArgs,
    run: &Run,
    command: &[String],
    store: &Store,
) -> Result<(), Failure> {
    let files = super::policies(args, run, store);
    files.check(&SessionConfig::default())?;
    let Some(policies) = load::load(&files, args.compat.compat())? else {
        return Ok(());
    };
    let mut request = Request::new(&audit.agent, Action::Run);
    request.command = Some(command);
    let decision = policies.decide(&request);
    audit.record(Event::Decided {
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

fn cannot_start(audit: &AuditTrail, program: &str, error: &std::io::Error) -> Failure {
    let message = format!("cannot run `{program}`: {}", failure::describe(error));
    let event = Event::ExecutionFailed {
        code: ReasonCode::RunCannotStart.into(),
        message: message.clone(),
    };
    if let Err(failure) = audit.record(event) {
        return failure;
    }
    let exit = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    Failure::new(ReasonCode::RunCannotStart, message).with_exit(exit)
}

/// Ctrl-C reaches the agent from the terminal. Other signals are sent to Brig alone and forwarded.
async fn wait(child: &mut Child, interrupts: &mut Interrupts) -> Result<ExitStatus, Failure> {
    loop {
        tokio::select! {
            status = child.wait() => {
                return status
                    .map_err(|error| Failure::new(ReasonCode::IoFailed, failure::describe(&error)));
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

struct AuditTrail {
    recorder: Arc<dyn Recorder>,
    agent: String,
}

impl AuditTrail {
    /// Writes a record and waits until it is on disk. What cannot be recorded is not run.
    fn record(&self, event: Event) -> Result<(), Failure> {
        let record = Record {
            at: Timestamp::now(),
            agent: self.agent.clone(),
            session: String::new(),
            execution: None,
            event,
        };
        (self.recorder.append(record))
            .map_err(|error| Failure::new(ReasonCode::AuditUnwritable, error.to_string()))
    }
}
