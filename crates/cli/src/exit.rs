//! Exit codes, and the line that explains them.

use brig_sandbox::{KillReason, Outcome};

use crate::units;

/// The answer to a question is no: a policy is not sound, a case does not hold.
pub const NO: u8 = 1;
/// Brig itself failed.
pub const FAILED: u8 = 125;
/// A policy said no.
pub const DENIED: u8 = 126;

const TIMEOUT: u8 = 124;
const LIMIT: u8 = 137;
const SIGPIPE: i32 = 13;

/// The way shells report a signal.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILED)
}

/// Who reads our stdout went away.
pub fn of_broken_pipe() -> u8 {
    of_signal(SIGPIPE)
}

/// `cancelled_by` is the signal that made Brig cancel, if one did.
pub fn of_outcome(outcome: &Outcome, cancelled_by: Option<i32>) -> u8 {
    match &outcome.killed {
        None => u8::try_from(outcome.exit_code).unwrap_or(FAILED),
        Some(KillReason::Timeout { .. }) => TIMEOUT,
        Some(
            KillReason::Memory { .. } | KillReason::Processes { .. } | KillReason::Output { .. },
        ) => LIMIT,
        Some(KillReason::Cancelled) => cancelled_by.map_or(FAILED, of_signal),
        Some(KillReason::Destroyed) => FAILED,
    }
}

/// What ended the program, and how to give it more, on one line. The limits of a session are
/// those it was created with, and those of a policy nobody else can raise.
pub fn explain(reason: &KillReason, in_session: bool, governed: bool) -> String {
    let (what, raise) = match reason {
        KillReason::Timeout { limit_ms } => (
            format!("ran longer than {}", units::duration(*limit_ms)),
            "--timeout",
        ),
        KillReason::Memory { limit_bytes, .. } => (
            format!("used more than {} of memory", units::size(*limit_bytes)),
            "--memory",
        ),
        KillReason::Processes { limit } => {
            (format!("started more than {limit} processes"), "--pids")
        }
        KillReason::Output { limit_bytes } => (
            format!("wrote more than {} of output", units::size(*limit_bytes)),
            "--output-max",
        ),
        KillReason::Cancelled => return "cancelled".into(),
        KillReason::Destroyed => return "killed: the sandbox was destroyed meanwhile".into(),
    };
    let place = if in_session {
        " of `brig session create`"
    } else {
        ""
    };
    let policy = if governed {
        ", or in the policy if it sets one"
    } else {
        ""
    };
    format!("killed: {what}; raise the limit with {raise}{place}{policy}")
}
