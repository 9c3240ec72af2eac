//! Watches one execution: its deadline, its orders, and an end that comes whatever happens.

use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backend::{ExecCommand, ExecIo, Permit};
use crate::execution::Prepared;
use crate::{Error, Event, ExecRequest, Instance, KillReason, Outcome, Output, Result, Usage};

/// How long an instance may take to end an execution before it is ended itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long a destroyed instance may take to give up its executions.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Everything that is needed to run once.
pub(crate) struct Watched {
    permit: Permit,
    request: ExecRequest,
    events: Option<mpsc::Sender<Event>>,
    stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    control: mpsc::UnboundedReceiver<ExecCommand>,
    timeout: Duration,
}

impl Watched {
    pub fn new(
        permit: Permit,
        prepared: Prepared,
        events: Option<mpsc::Sender<Event>>,
        control: mpsc::UnboundedReceiver<ExecCommand>,
    ) -> Self {
        let Prepared {
            exec,
            stdin,
            timeout,
            stream: _,
            facts: _,
        } = prepared;
        Self {
            permit,
            request: exec,
            events,
            stdin,
            control,
            timeout,
        }
    }
}

pub(crate) struct Watch {
    pub result: Result<Outcome>,
    /// Whether the instance is of no more use.
    pub lost: bool,
}

pub(crate) async fn supervise(instance: &dyn Instance, work: Watched) -> Watch {
    let Watched {
        permit,
        request,
        events,
        stdin,
        mut control,
        timeout: limit,
    } = work;
    let started = Instant::now();
    let attempts = permit.attempts().clone();
    let (orders, commands) = mpsc::unbounded_channel();
    while let Ok(order) = control.try_recv() {
        if let ExecCommand::Kill(reason) = order {
            return Watch {
                result: Ok(killed(reason, Duration::ZERO)),
                lost: false,
            };
        }
        let _ = orders.send(order);
    }
    let execution = instance.execute(
        permit,
        request,
        ExecIo {
            events,
            stdin,
            commands,
        },
    );
    tokio::pin!(execution);
    let alarm = sleep_until(started + limit);
    tokio::pin!(alarm);
    let mut killing: Option<KillReason> = None;
    let mut listening = true;

    loop {
        let reason = tokio::select! {
            biased;
            result = &mut execution => {
                return settle(result, killing, started.elapsed());
            }
            order = control.recv(), if listening => match order {
                Some(ExecCommand::Kill(reason)) => reason,
                Some(order) => {
                    let _ = orders.send(order);
                    continue;
                }
                None => {
                    listening = false;
                    continue;
                }
            },
            // What can't be recorded must not go on.
            () = attempts.unrecorded() => KillReason::Cancelled,
            () = &mut alarm => match killing.take() {
                None => KillReason::Timeout { limit_ms: millis(limit) },
                Some(reason) => {
                    // It was told and did not obey: the instance is not to be trusted any more.
                    let _ = timeout(GIVE_UP, instance.destroy()).await;
                    let last = timeout(GIVE_UP, &mut execution).await.ok().and_then(Result::ok);
                    let mut outcome = last.unwrap_or_else(|| killed(reason.clone(), started.elapsed()));
                    outcome.killed = Some(reason);
                    return Watch { result: Ok(outcome), lost: true };
                }
            },
        };
        if killing.is_none() {
            let _ = orders.send(ExecCommand::Kill(reason.clone()));
            alarm.as_mut().reset(Instant::now() + GRACE);
            killing = Some(reason);
        }
    }
}

fn settle(result: Result<Outcome>, killing: Option<KillReason>, ran: Duration) -> Watch {
    match (result, killing) {
        (Err(error), Some(reason)) if is_loss(&error) => Watch {
            result: Ok(killed(reason, ran)),
            lost: true,
        },
        (Err(error), _) => Watch {
            lost: is_loss(&error),
            result: Err(error),
        },
        (Ok(outcome), _) => Watch {
            result: Ok(outcome),
            lost: false,
        },
    }
}

fn is_loss(error: &Error) -> bool {
    matches!(error, Error::InstanceLost(_) | Error::Protocol(_))
}

/// The outcome of an execution whose instance can't tell any more.
pub(crate) fn killed(reason: KillReason, duration: Duration) -> Outcome {
    Outcome {
        exit_code: 137,
        signal: Some(9),
        stdout: Output::default(),
        stderr: Output::default(),
        duration,
        killed: Some(reason),
        usage: Usage::default(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
