//! Exit codes, and the line that explains them.

use std::io;

use brig_policy::Given;
use brig_sandbox::config::MIB;
use brig_sandbox::{KillReason, Outcome, SessionConfig};

use crate::{failure, units};

/// A negative answer: a policy is invalid, or a test case fails.
pub(crate) const NO: u8 = 1;
/// Brig itself failed.
pub(crate) const FAILED: u8 = 125;
/// Denied by a policy.
pub(crate) const DENIED: u8 = 126;

const TIMEOUT: u8 = 124;
/// A limit ended the program or truncated its output.
pub(crate) const LIMIT: u8 = 137;
pub(crate) const SIGPIPE: i32 = 13;
/// The kernel ends who makes a file larger than RLIMIT_FSIZE.
const SIGXFSZ: i32 = 25;

/// As shells report a signal.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILED)
}

/// Our stdout cannot be written. If its reader is gone, no message is needed.
pub(crate) fn of_unwritten(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return of_broken_pipe();
    }
    failure::unwritten(error).show();
    FAILED
}

/// The reader of our stdout is gone.
pub(crate) fn of_broken_pipe() -> u8 {
    of_signal(SIGPIPE)
}

/// `cancelled_by` is the signal that made Brig cancel, if one did.
pub(crate) fn of_outcome(outcome: &Outcome, cancelled_by: Option<i32>) -> u8 {
    match &outcome.killed {
        None => u8::try_from(outcome.exit_code).unwrap_or(FAILED),
        Some(KillReason::Timeout { .. }) => TIMEOUT,
        Some(
            KillReason::Memory { .. }
            | KillReason::Processes { .. }
            | KillReason::Disk { .. }
            | KillReason::Output { .. }
            | KillReason::Unobserved { .. },
        ) => LIMIT,
        Some(KillReason::Cancelled) => cancelled_by.map_or(FAILED, of_signal),
        Some(_) => FAILED,
    }
}

/// Who set the limits of a run, beside the flags of its command.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitOrigins {
    /// By the flag for the same limit: the field of a policy, and the policy's name.
    policies: Vec<(&'static str, &'static str, String)>,
    /// Whether a session was created with its own timeout, which no execution can exceed.
    session_timeout: bool,
    /// How large a file may be.
    file_bytes: u64,
    /// Whether a host directory is writable, for which the disk limit can't be set without a waiver.
    on_host: bool,
}

impl LimitOrigins {
    /// Of a config under its policies.
    pub(crate) fn of(config: &SessionConfig) -> Self {
        let limits = &config.limits;
        let mut policies = Vec::new();
        for document in config
            .policies()
            .into_iter()
            .flat_map(|set| set.documents())
        {
            let given = document.limits();
            let number = |given: &Option<Given<u64>>| given.as_ref().map(|given| given.value);
            let memory = number(&given.max_memory_mb).map(|mib| mib.saturating_mul(MIB));
            let set = [
                (
                    TIMEOUT_FLAG,
                    "timeout_seconds",
                    number(&given.timeout_seconds) == Some(limits.timeout.value.as_secs()),
                ),
                (
                    MEMORY_FLAG,
                    "max_memory_mb",
                    memory == Some(limits.memory_bytes.value),
                ),
                (
                    PROCESSES_FLAG,
                    "max_processes",
                    number(&given.max_processes) == Some(limits.processes.value.into()),
                ),
                (
                    OUTPUT_FLAG,
                    "max_output_bytes",
                    number(&given.max_output_bytes) == Some(limits.output_bytes.value),
                ),
            ];
            let set = set.into_iter().filter(|(_, _, set)| *set);
            policies.extend(set.map(|(flag, field, _)| (flag, field, document.name().to_owned())));
        }
        Self {
            policies,
            session_timeout: limits.timeout.asked,
            file_bytes: limits.disk_bytes.value,
            on_host: config.workspace.is_some() || config.mounts.iter().any(|mount| mount.writable),
        }
    }

    /// How to raise the limit of this flag.
    fn raise(&self, flag: &str, in_session: bool) -> String {
        if let Some((_, field, policy)) = self.policies.iter().find(|(own, ..)| *own == flag) {
            return format!("policy `{policy}` sets this limit, with `{field}`");
        }
        // `brig session exec` has only this one.
        if in_session && (flag != TIMEOUT_FLAG || self.session_timeout) {
            return format!(
                "the session was created with this limit; set another one with {flag} of \
                 `brig session create`"
            );
        }
        format!("raise the limit with {flag}")
    }
}

const TIMEOUT_FLAG: &str = "--timeout";
const MEMORY_FLAG: &str = "--memory";
const PROCESSES_FLAG: &str = "--pids";
const DISK_FLAG: &str = "--disk";
const OUTPUT_FLAG: &str = "--output-max";

/// What ended the program, and how to raise the limit, on one line.
pub(crate) fn explain(reason: &KillReason, origins: &LimitOrigins, in_session: bool) -> String {
    let (what, flag) = match reason {
        KillReason::Timeout { limit_ms } => (
            format!("ran longer than {}", units::duration(*limit_ms)),
            TIMEOUT_FLAG,
        ),
        KillReason::Memory { limit_bytes, .. } => (
            format!("used more than {} of memory", units::size(*limit_bytes)),
            MEMORY_FLAG,
        ),
        KillReason::Processes { limit } => (
            format!("started more than {limit} processes"),
            PROCESSES_FLAG,
        ),
        KillReason::Disk { limit_bytes } => (
            format!("wrote more than {} to the disk", units::size(*limit_bytes)),
            DISK_FLAG,
        ),
        KillReason::Output { limit_bytes } => (
            format!("wrote more than {} of output", units::size(*limit_bytes)),
            OUTPUT_FLAG,
        ),
        KillReason::Unobserved { silent_ms } => {
            return format!(
                "killed: the sandbox did not report what it uses for {}, so its limits could not be enforced",
                units::duration(*silent_ms)
            );
        }
        KillReason::Cancelled => return "cancelled".into(),
        KillReason::Destroyed => return "killed: the sandbox was destroyed".into(),
        other => return format!("killed: {}", other.name()),
    };
    format!("killed: {what}; {}", origins.raise(flag, in_session))
}

/// Why a program ended that the kernel did not let write a large file. It often says nothing itself.
pub(crate) fn explain_signal(
    outcome: &Outcome,
    origins: &LimitOrigins,
    in_session: bool,
) -> Option<String> {
    let is_file_size = outcome.signal == Some(SIGXFSZ) || outcome.exit_code == 128 + SIGXFSZ;
    if outcome.killed.is_some() || !is_file_size {
        return None;
    }
    let mut raise = origins.raise(DISK_FLAG, in_session);
    if origins.on_host {
        raise.push_str(
            " and --waive disk, because nothing counts what is written to a host directory",
        );
    }
    Some(format!(
        "ended by SIGXFSZ: a file was to become larger than the disk limit of {}; {raise}",
        units::size(origins.file_bytes)
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use brig_policy::{Compat, Document, PolicySet};
    use brig_sandbox::Limit;

    use super::*;

    #[test]
    fn a_limit_is_raised_where_it_was_set() {
        let memory = KillReason::Memory {
            limit_bytes: 64 << 20,
            peak_bytes: 0,
        };
        let timeout = KillReason::Timeout { limit_ms: 5000 };
        let own = LimitOrigins::of(&SessionConfig::default());
        assert_eq!(
            explain(&memory, &own, false),
            "killed: used more than 64M of memory; raise the limit with --memory"
        );
        let in_session = explain(&memory, &own, true);
        assert!(in_session.ends_with("--memory of `brig session create`"));
        assert!(explain(&timeout, &own, true).ends_with("raise the limit with --timeout"));

        let text = "name: small\ndefaults: {max_memory_mb: 64, timeout_seconds: 60}\n";
        let loaded = Document::load("p.yaml", text, Compat::Strict).expect("valid");
        let policies = Arc::new(PolicySet::new(vec![loaded.document]));
        let mut config = SessionConfig::default();
        config.limits.timeout = Limit::asked(Duration::from_secs(5));
        let governed = LimitOrigins::of(&config.under(policies).expect("valid"));
        assert_eq!(
            explain(&memory, &governed, true),
            "killed: used more than 64M of memory; policy `small` sets this limit, with \
             `max_memory_mb`"
        );
        assert!(explain(&timeout, &governed, false).ends_with("with --timeout"));
        let in_session = explain(&timeout, &governed, true);
        assert!(in_session.ends_with("--timeout of `brig session create`"));
    }
}
