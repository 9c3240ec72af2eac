//! What a reader wants to know of a record at a glance.

use std::fmt::Write;

use brig_reason::ReasonCode;
use jiff::Timestamp;
use serde_json::Value;

use crate::line::Line;
use crate::{ApprovalOutcome, Egress, Event, Record, Verdict};

/// One record, prepared for a list or an export.
#[derive(Clone, Debug)]
pub struct View {
    /// The number of the record in the log, from 0.
    pub seq: u64,
    /// The hash of its line, in hex.
    pub hash: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// The agent. May be empty, as in [`Record::agent`].
    pub agent: String,
    /// The session. May be empty, as in [`Record::session`].
    pub session: String,
    /// The execution. `None` for what belongs to no execution.
    pub execution: Option<String>,
    /// The name of the event.
    pub event: String,
    /// What was decided, of what needs a decision.
    pub decision: Option<Verdict>,
    /// The reason code. `None` if the event has none.
    pub code: Option<String>,
    /// The rule that decided. `None` if there is none.
    pub rule: Option<String>,
    /// The rest, in a few words. Written by others: escape it before it is shown.
    pub detail: String,
    /// The whole record.
    pub record: Value,
}

impl View {
    /// A record of an event that is not known, from a later version, has no decision. Nothing if it is not a record
    /// at all.
    pub fn of(line: &Line<'_>) -> Option<Self> {
        let value: Value = serde_json::from_str(line.record).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let mut view = Self {
            seq: line.seq,
            hash: line.hash.to_string(),
            at: text("at")?.parse().ok()?,
            agent: text("agent")?.to_owned(),
            session: text("session")?.to_owned(),
            execution: text("execution").map(str::to_owned),
            event: text("event")?.to_owned(),
            decision: None,
            code: text("code").map(str::to_owned),
            rule: text("rule").map(str::to_owned),
            detail: String::new(),
            record: Value::Null,
        };
        match serde_json::from_str::<Record>(line.record) {
            Ok(record) => {
                view.decision = decision(&record.event);
                view.detail = detail(&record.event);
            }
            Err(_) => view.detail = "written by a newer Brig".into(),
        }
        view.record = value;
        Some(view)
    }
}

fn decision(event: &Event) -> Option<Verdict> {
    let (allowed, denied) = match event {
        Event::Receipt(receipt) => return Some(receipt.decision),
        Event::ExecutionFailed { .. }
        | Event::FilesNotSaved { .. }
        | Event::OperationFailed { .. } => return Some(Verdict::Error),
        Event::Decided { allowed, .. } => (*allowed, Verdict::DeniedByPolicy),
        Event::EgressDecided(egress) | Event::EgressTotal(egress) => {
            (egress.allowed, Verdict::BlockedAtEgress)
        }
        Event::CommandAttempted(command) | Event::CommandTotal(command) => {
            (command.allowed, Verdict::CommandDenied)
        }
        Event::ToolCalled(tool) => (tool.allowed, Verdict::DeniedByPolicy),
        Event::ApprovalAnswered(approval) => (
            approval.outcome == ApprovalOutcome::Approved,
            Verdict::DeniedByPolicy,
        ),
        _ => return None,
    };
    Some(if allowed { Verdict::Allowed } else { denied })
}

fn target(egress: &Egress) -> String {
    match egress.port {
        0 => format!("{} {}", egress.protocol, egress.host),
        port => format!("{} {}:{port}", egress.protocol, egress.host),
    }
}

fn asked(egress: &Egress) -> String {
    let mut text = target(egress);
    if egress.raw {
        text.push_str(", any protocol");
    }
    if let Some(address) = &egress.address {
        let _ = write!(text, ", at {address}");
    }
    if let Some(times) = egress.times {
        let _ = write!(text, ", {} times", times.count);
    }
    if let Some(carried) = egress.carried {
        let (sent, received) = (carried.sent, carried.received);
        let _ = write!(text, ", {sent} bytes out, {received} in");
        let _ = write!(text, ", {} ms", carried.milliseconds);
    }
    if let Some(detail) = &egress.detail {
        let _ = write!(text, ": {detail}");
    }
    text
}

fn detail(event: &Event) -> String {
    match event {
        Event::SessionCreated { backend, waived } => match waived.as_slice() {
            [] => backend.clone(),
            _ => format!("{backend}, without {}", waived.join(", ")),
        },
        Event::SessionRestored { checkpoint, .. } => checkpoint.clone(),
        Event::SessionForked { from, checkpoint } => format!("from {from} at {checkpoint}"),
        Event::SessionDestroyRequested | Event::SessionDestroyed => String::new(),
        Event::OperationFailed { of, message, .. } => format!("{of}: {message}"),
        Event::CheckpointSaved { name, .. } | Event::CheckpointDeleted { name } => name.clone(),
        Event::Decided { reason, .. } => reason.clone(),
        Event::ExecutionStarted { action } => action.clone(),
        Event::ExecutionFinished {
            exit_code,
            kill_reason,
        } => ending(*exit_code, kill_reason.as_deref()),
        Event::ExecutionFailed { message, .. } | Event::FilesNotSaved { message, .. } => {
            message.clone()
        }
        Event::Receipt(receipt) => {
            let mut text = ending(receipt.exit_code, receipt.kill_reason.as_deref());
            if text.is_empty() {
                return receipt.reason.clone();
            }
            let _ = write!(text, ", {} ms", receipt.duration_us / 1000);
            text
        }
        Event::EgressDecided(egress) | Event::EgressClosed(egress) | Event::EgressTotal(egress) => {
            asked(egress)
        }
        Event::CommandAttempted(command) | Event::CommandTotal(command) => {
            let mut text = command.program.clone();
            for argument in command.arguments.iter().skip(1) {
                text.push(' ');
                text.push_str(argument);
            }
            if command.code == ReasonCode::CommandFailed {
                text.push_str(" (not started)");
            } else if command.code == ReasonCode::CommandUnconfirmed {
                text.push_str(" (not seen to start)");
            }
            if let Some(detail) = &command.detail {
                let _ = write!(text, ": {detail}");
            }
            if let Some(times) = command.times {
                let _ = write!(text, ", {} times", times.count);
            }
            text
        }
        Event::ToolCalled(tool) => tool.tool.clone(),
        Event::ApprovalRequested(asked) => format!("{} {}", asked.kind, asked.name),
        Event::ApprovalAnswered(approval) => {
            let mut text = approval.outcome.name().to_owned();
            if let Some(by) = &approval.by {
                let _ = write!(text, " by {by}");
            }
            if let Some(reason) = &approval.reason {
                let _ = write!(text, ": {reason}");
            }
            text
        }
        Event::ControlWaived { control } => control.clone(),
        Event::AllowlistChanged {
            layer,
            added,
            removed,
        } => {
            let mut text = layer.clone();
            added
                .iter()
                .for_each(|rule| text.push_str(&format!(" +{rule}")));
            removed
                .iter()
                .for_each(|rule| text.push_str(&format!(" -{rule}")));
            text
        }
        Event::Unsandboxed { by, program, .. } => format!("{program}, set by {by}"),
        Event::Suppressed {
            of, subject, count, ..
        } => match subject {
            Some(subject) => format!("{count} more {of}: {subject}"),
            None => format!("{count} more {of}"),
        },
        Event::LogCreated { origin, .. } => origin.clone(),
        Event::KeyRotated { to, .. } => to.clone(),
        Event::LogPruned { records, .. } => format!("the first {records} records removed"),
        Event::LogRepaired { bytes, .. } => format!("{bytes} bytes removed"),
    }
}

fn ending(exit_code: Option<i32>, kill_reason: Option<&str>) -> String {
    match (kill_reason, exit_code) {
        (Some(reason), _) => format!("ended: {reason}"),
        (None, Some(code)) => format!("exit {code}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hash;

    #[test]
    fn a_record_of_a_later_version_is_shown() {
        let record = r#"{"agent":"a","at":"2026-11-19T00:00:00Z","event":"from_the_future","execution":null,"session":"s","x":1}"#;
        let line = Line {
            hash: Hash::ZERO,
            prev: Hash::ZERO,
            seq: 7,
            record,
            tag: None,
        };
        let view = View::of(&line).expect("a record");
        assert_eq!(view.event, "from_the_future");
        assert_eq!(view.detail, "written by a newer Brig");
        assert_eq!((view.decision, view.record["x"].as_u64()), (None, Some(1)));
    }
}
