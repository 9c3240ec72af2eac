//! Checks a request against its session.

use tokio::sync::mpsc;

use super::{Ends, ExecSignal, Execution};
use crate::request::{Cancelled, Request, Work};
use crate::{Error, KillReason, Result, SessionConfig, env, limits};

/// Pieces of output that may wait for a slow reader before the program is slowed down.
const EVENTS: usize = 64;

impl Request {
    /// The execution for the backend, and its ends for the caller.
    pub(crate) fn check(self, config: &SessionConfig) -> Result<(Execution, Ends)> {
        check_work(&self.work)?;
        if let Some(cwd) = &self.cwd {
            no_nul("cwd", cwd)?;
        }
        if let Some(script) = &self.script {
            check_script(script)?;
        }
        config.check_variables(&self.env)?;
        let own = config.limits.timeout;
        let timeout = match self.timeout {
            Some(given) if own.asked => limits::TIMEOUT.check(given)?.min(own.value),
            Some(given) => limits::TIMEOUT.check(given)?,
            None => own.value,
        };
        let kept = config.limits.output_bytes;
        let output_bytes = match self.output_bytes {
            Some(given) if kept.asked => limits::OUTPUT.check(given)?.min(kept.value),
            Some(given) => limits::OUTPUT.check(given)?,
            None => kept.value,
        };
        let (signal_sender, signals) = mpsc::unbounded_channel();
        let (event_sender, events) = self.stream.then(|| mpsc::channel(EVENTS)).unzip();
        let execution = Execution {
            work: self.work,
            env: env::merge(&config.env, self.env)?,
            cwd: self.cwd,
            script: self.script,
            terminal: self.terminal,
            stdin: self.stdin,
            events: event_sender,
            uncut: self.stream && !policy_limits_output(config),
            output_bytes,
            timeout,
            signals,
            supervisor: signal_sender.clone(),
            facts: self.facts,
            trace: self.trace,
        };
        if let Some(cancelled) = self.cancelled {
            forward(cancelled, signal_sender.clone());
        }
        let ends = Ends {
            signals: signal_sender,
            events,
        };
        Ok((execution, ends))
    }
}

/// Until the execution has ended.
fn forward(cancelled: Cancelled, signals: mpsc::UnboundedSender<ExecSignal>) {
    tokio::spawn(async move {
        tokio::select! {
            () = cancelled => {
                let _ = signals.send(ExecSignal::Kill(KillReason::Cancelled));
            }
            () = signals.closed() => {}
        }
    });
}

fn policy_limits_output(config: &SessionConfig) -> bool {
    let mut documents = config
        .policies()
        .into_iter()
        .flat_map(|set| set.documents());
    documents.any(|document| document.limits().max_output_bytes.is_some())
}

fn check_work(work: &Work) -> Result<()> {
    let (what, argv) = match work {
        Work::Code { args, .. } => ("arguments", args),
        Work::Command(argv) => ("command", argv),
    };
    if matches!(work, Work::Command(argv) if argv.first().is_none_or(String::is_empty)) {
        return Err(Error::InvalidConfig {
            what,
            problem: "no program given".into(),
        });
    }
    argv.iter().try_for_each(|argument| no_nul(what, argument))
}

/// A file of this name is created, and the path becomes an argument.
fn check_script(script: &str) -> Result<()> {
    no_nul("script", script)?;
    let name = script.rsplit('/').next().unwrap_or_default();
    let placed = script == name || script.starts_with('/');
    if !placed || matches!(name, "" | "." | "..") || name.len() > 255 || script.len() > 4095 {
        return Err(Error::InvalidConfig {
            what: "script",
            problem: "it must be a file name or an absolute path".into(),
        });
    }
    Ok(())
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
