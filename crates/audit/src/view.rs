//! What a reader wants to know of a record at a glance.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::Value;

use crate::line::Line;
use crate::{Egress, Event, Record, Verdict};

#[derive(Clone, Debug)]
pub struct View {
    pub seq: u64,
    pub hash: String,
    pub at: Timestamp,
    pub agent: String,
    pub session: String,
    pub execution: Option<String>,
    /// The name of the event.
    pub event: String,
    /// What was decided, of what needs a decision.
    pub decision: Option<Verdict>,
    pub code: Option<String>,
    pub rule: Option<String>,
    /// The rest, in a few words. Written by others: escape it before it is shown.
    pub detail: String,
    /// The whole record.
    pub record: Value,
}

impl View {
    /// A record of an event that is not known, from a later version, has no decision and no
    /// detail. Nothing if it is no record at all.
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
        if let Ok(record) = serde_json::from_str::<Record>(line.record) {
            view.decision = decision(&record.event);
            view.detail = detail(&record.event);
        }
        view.record = value;
        Some(view)
    }
}

fn decision(event: &Event) -> Option<Verdict> {
    let (allowed, denied) = match event {
        Event::Receipt(receipt) => return Some(receipt.decision),
        Event::ExecutionFailed { .. } => return Some(Verdict::Error),
        Event::Decided { allowed, .. } => (*allowed, Verdict::DeniedByPolicy),
        Event::EgressDecided(egress) => (egress.allowed, Verdict::BlockedAtEgress),
        Event::CommandAttempted(command) => (command.allowed, Verdict::CommandDenied),
        Event::ToolCalled(tool) => (tool.allowed, Verdict::DeniedByPolicy),
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

fn detail(event: &Event) -> String {
    match event {
        Event::SessionCreated { backend, waived } => match waived.as_slice() {
            [] => backend.clone(),
            _ => format!("{backend}, without {}", waived.join(", ")),
        },
        Event::SessionRestored { checkpoint, .. } => checkpoint.clone(),
        Event::SessionForked { from, checkpoint } => format!("from {from} at {checkpoint}"),
        Event::SessionDestroyed => String::new(),
        Event::CheckpointSaved { name, .. } | Event::CheckpointDeleted { name } => name.clone(),
        Event::Decided { reason, .. } => reason.clone(),
        Event::ExecutionStarted { action } => action.clone(),
        Event::ExecutionFinished {
            exit_code,
            kill_reason,
        } => ending(*exit_code, kill_reason.as_deref()),
        Event::ExecutionFailed { message, .. } => message.clone(),
        Event::Receipt(receipt) => {
            let mut text = ending(receipt.exit_code, receipt.kill_reason.as_deref());
            if text.is_empty() {
                return receipt.reason.clone();
            }
            let _ = write!(text, ", {} ms", receipt.duration_us / 1000);
            text
        }
        Event::EgressDecided(egress) => target(egress),
        Event::EgressClosed(egress) => match egress.carried {
            Some(carried) => format!(
                "{}, {} bytes out, {} in, {} ms",
                target(egress),
                carried.sent,
                carried.received,
                carried.milliseconds
            ),
            None => target(egress),
        },
        Event::CommandAttempted(command) => {
            let mut text = command.program.clone();
            for argument in command.arguments.iter().skip(1) {
                text.push(' ');
                text.push_str(argument);
            }
            text
        }
        Event::ToolCalled(tool) => tool.tool.clone(),
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
        Event::Unsandboxed { by, program, .. } => format!("{program}, said by {by}"),
        Event::Suppressed {
            of, subject, count, ..
        } => match subject {
            Some(subject) => format!("{count} more {of}: {subject}"),
            None => format!("{count} more {of}"),
        },
        Event::LogCreated { origin, .. } => origin.clone(),
        Event::KeyRotated { to, .. } => to.clone(),
        Event::LogRepaired { bytes, .. } => format!("{bytes} bytes cut off"),
    }
}

fn ending(exit_code: Option<i32>, kill_reason: Option<&str>) -> String {
    match (kill_reason, exit_code) {
        (Some(reason), _) => format!("ended: {reason}"),
        (None, Some(code)) => format!("exit {code}"),
        (None, None) => String::new(),
    }
}
