//! Supervises one execution: its deadline, the signals to it, and an end that comes whatever happens.
//! The only place where an execution that ignores a kill loses its instance.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{ExecSignal, Execution};
use crate::backend::Permit;
use crate::{Error, Instance, KillReason, Outcome, Result};

/// How long an instance may take to end an execution before it is destroyed. The files of a session may go with it,
/// so what is only slow on a busy machine gets its time.
const GRACE: Duration = Duration::from_secs(10);
/// How long a destroyed instance may take to return.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Supervised {
    pub result: Result<Outcome>,
    /// Whether the instance can't be used any more.
    pub lost: bool,
}

pub(crate) async fn supervise(
    instance: &dyn Instance,
    permit: Permit,
    mut execution: Execution,
) -> Supervised {
    let started = Instant::now();
    let limit = execution.timeout;
    let attempts = permit.attempts().clone();
    let (forward, forwarded) = mpsc::unbounded_channel();
    let mut signals = std::mem::replace(&mut execution.signals, forwarded);
    while let Ok(signal) = signals.try_recv() {
        if let ExecSignal::Kill(reason) = signal {
            return Supervised {
                result: Ok(Outcome::killed(reason, Duration::ZERO)),
                lost: false,
            };
        }
        let _ = forward.send(signal);
    }
    let running = instance.execute(permit, execution);
    tokio::pin!(running);
    // First the deadline; after a kill, the end of the grace period.
    let timer = sleep_until(started + limit);
    tokio::pin!(timer);
    let mut killing: Option<KillReason> = None;

    loop {
        let reason = tokio::select! {
            biased;
            result = &mut running => {
                return settle(result, killing, started.elapsed());
            }
            Some(signal) = signals.recv() => match signal {
                ExecSignal::Kill(reason) => reason,
                signal => {
                    let _ = forward.send(signal);
                    continue;
                }
            },
            // What can't be recorded must not go on.
            () = attempts.unrecorded() => KillReason::Cancelled,
            () = &mut timer => match killing.take() {
                None => KillReason::Timeout { limit_ms: millis(limit) },
                Some(reason) => {
                    // The kill had no effect: the instance can't be trusted any more.
                    let (_, last) = tokio::join!(
                        timeout(DESTROY_TIMEOUT, instance.destroy()),
                        timeout(DESTROY_TIMEOUT, &mut running),
                    );
                    let last = last.ok().and_then(Result::ok);
                    let mut outcome =
                        last.unwrap_or_else(|| Outcome::killed(reason.clone(), started.elapsed()));
                    outcome.killed = Some(reason);
                    outcome.lost = None;
                    return Supervised { result: Ok(outcome), lost: true };
                }
            },
        };
        if killing.is_none() {
            let _ = forward.send(ExecSignal::Kill(reason.clone()));
            timer.as_mut().reset(Instant::now() + GRACE);
            killing = Some(reason);
        }
    }
}

fn settle(result: Result<Outcome>, killing: Option<KillReason>, ran: Duration) -> Supervised {
    match (result, killing) {
        (Err(error), Some(reason)) if is_loss(&error) => Supervised {
            result: Ok(Outcome::killed(reason, ran)),
            lost: true,
        },
        // What it had written until then is kept.
        (Ok(outcome), Some(reason)) if outcome.lost.is_some() => Supervised {
            result: Ok(Outcome {
                stdout: outcome.stdout,
                stderr: outcome.stderr,
                usage: outcome.usage,
                ..Outcome::killed(reason, ran)
            }),
            lost: true,
        },
        (Ok(outcome), None) if outcome.lost.is_some() => Supervised {
            result: Ok(outcome),
            lost: true,
        },
        (result, _) => Supervised {
            lost: result.as_ref().is_err_and(is_loss),
            result,
        },
    }
}

fn is_loss(error: &Error) -> bool {
    matches!(error, Error::InstanceLost(_) | Error::Protocol(_))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
