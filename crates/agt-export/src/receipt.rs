use brig_audit::line::Line;
use brig_audit::{Egress, Event, Record};

use crate::entry::{AgtEntry, Unprotected};
use crate::text::Text;
use crate::timestamp;
use crate::value::Value;

/// The AGT entry of a receipt, not yet part of a chain. Nothing if the line is not a receipt.
pub(crate) fn from_receipt(line: &Line<'_>) -> Option<AgtEntry> {
    let record: Record = serde_json::from_str(line.record).ok()?;
    let Event::Receipt(receipt) = record.event else {
        return None;
    };
    let decision = Text::from(receipt.decision.name());
    let id = String::from_utf8_lossy(&line.hash.hex()[..16]).into_owned();
    Some(AgtEntry {
        entry_id: Text::from(&*format!("audit_{id}")),
        timestamp: timestamp::isoformat_of(record.at),
        event_type: "sandbox.execute".into(),
        agent_did: Text::from(&*record.agent),
        action: Text::from(&*format!("step:{}", receipt.step)),
        resource: record
            .execution
            .map(|id| Text::from(&*format!("ticket:{id}"))),
        data: Value::dict([
            ("intent", Value::str(&receipt.action)),
            ("azure_sandbox_id", Value::str(&record.session)),
            (
                "duration_seconds",
                Value::Float(receipt.duration_us as f64 / 1e6),
            ),
            (
                "egress_decisions",
                Value::List(receipt.egress.iter().map(egress).collect()),
            ),
            ("stdout_excerpt", Value::str(&receipt.stdout.excerpt)),
            ("stderr_excerpt", Value::str(&receipt.stderr.excerpt)),
        ]),
        outcome: decision.clone(),
        previous_hash: Text::default(),
        entry_hash: String::new(),
        unprotected: Unprotected {
            policy_decision: Some(decision),
            matched_rule: Some(Text::from(&*receipt.reason)),
            session_id: Some(Text::from(&*record.session)),
            policy_version: receipt.policy.as_deref().map(Text::from),
            arguments_hash: receipt.code_digest.strip_prefix("sha256:").map(Text::from),
            // Also of who denied it: AGT has one field for who answered.
            approver_did: (receipt.approval.as_ref())
                .and_then(|approval| approval.by.as_deref())
                .map(Text::from),
        },
    })
}

fn egress(decision: &Egress) -> Value {
    let action = if decision.allowed { "allow" } else { "deny" };
    Value::dict([
        ("action", Value::str(action)),
        ("code", Value::str(&decision.code)),
        ("host", Value::str(&decision.host)),
        ("port", Value::int(decision.port)),
        ("protocol", Value::str(&decision.protocol)),
        (
            "rule",
            decision.rule.as_deref().map_or(Value::Null, Value::str),
        ),
    ])
}
