//! The answer to one execution.

use brig_policy::Decision;
use serde_json::{Value, json};

use crate::{
    AgentId, Attempted, Control, ControlState, ExecutionId, ExecutionStatus, KillReason, Outcome,
    SessionId,
};

#[derive(Clone, Debug)]
pub struct Report {
    pub execution_id: ExecutionId,
    pub agent_id: AgentId,
    pub session_id: SessionId,
    pub backend: &'static str,
    pub status: ExecutionStatus,
    pub decision: Decision,
    /// Nothing if it was denied.
    pub outcome: Option<Outcome>,
    /// What held each limit, and how strongly.
    pub enforcement: Vec<ControlState>,
    pub waived: Vec<Control>,
    /// What it asked of the network, of commands and of tools.
    pub attempted: Attempted,
}

impl Report {
    /// The documented object of `--json`.
    pub fn to_json(&self) -> Value {
        json!({
            "execution_id": self.execution_id,
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "backend": self.backend,
            "status": self.status,
            "decision": {
                "allowed": self.decision.allowed,
                "code": self.decision.code,
                "rule": self.decision.rule,
                "reason": self.decision.reason,
            },
            "result": self.outcome.as_ref().map(result),
            "enforcement": self.enforcement,
            "waived": self.waived,
            "egress": self.attempted.egress,
            "commands": self.attempted.commands,
            "tools": self.attempted.tools,
            "omitted": self.attempted.omitted,
        })
    }
}

impl Outcome {
    /// Exit code 0, and not ended by Brig.
    pub fn success(&self) -> bool {
        self.exit_code == 0 && self.killed.is_none()
    }

    pub(crate) fn status(&self) -> ExecutionStatus {
        match &self.killed {
            None if self.exit_code == 0 => ExecutionStatus::Completed,
            Some(KillReason::Cancelled) => ExecutionStatus::Cancelled,
            _ => ExecutionStatus::Failed,
        }
    }
}

fn result(outcome: &Outcome) -> Value {
    json!({
        "success": outcome.success(),
        "exit_code": outcome.exit_code,
        "stdout": String::from_utf8_lossy(&outcome.stdout.bytes),
        "stderr": String::from_utf8_lossy(&outcome.stderr.bytes),
        "truncated": {
            "stdout": outcome.stdout.truncated(),
            "stderr": outcome.stderr.truncated(),
        },
        "stdout_bytes": outcome.stdout.total,
        "stderr_bytes": outcome.stderr.total,
        "duration_seconds": outcome.duration.as_secs_f64(),
        "killed": outcome.killed.is_some(),
        "kill_reason": outcome.killed.as_ref().map(KillReason::name),
        "kill_detail": outcome.killed.as_ref().and_then(detail),
        "usage": {
            "cpu_seconds": outcome.usage.cpu.as_secs_f64(),
            "peak_memory_bytes": outcome.usage.peak_memory_bytes,
        },
    })
}

/// The limits that were met, without the name that `kill_reason` already gives.
fn detail(reason: &KillReason) -> Option<Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(reason) else {
        return None;
    };
    fields.remove("kind");
    (!fields.is_empty()).then_some(Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Output, Usage};

    fn report(outcome: Option<Outcome>) -> Report {
        Report {
            execution_id: "e1".parse().expect("name"),
            agent_id: "a1".parse().expect("name"),
            session_id: "s1".parse().expect("name"),
            backend: "native",
            status: outcome
                .as_ref()
                .map_or(ExecutionStatus::Failed, Outcome::status),
            decision: Decision {
                allowed: true,
                code: "policy.none".into(),
                rule: None,
                reason: "no policy is loaded".into(),
            },
            outcome,
            enforcement: Vec::new(),
            waived: vec![Control::Memory],
            attempted: Attempted::default(),
        }
    }

    fn outcome(killed: Option<KillReason>) -> Outcome {
        Outcome {
            exit_code: if killed.is_some() { 137 } else { 0 },
            signal: killed.as_ref().map(|_| 9),
            stdout: Output {
                bytes: b"caf\xc3\xa9 \xff".to_vec(),
                total: 9,
            },
            stderr: Output::default(),
            duration: Duration::from_millis(1500),
            killed,
            usage: Usage {
                cpu: Duration::from_millis(250),
                peak_memory_bytes: 4096,
            },
        }
    }

    #[test]
    fn the_object_has_the_documented_shape() {
        let json = report(Some(outcome(None))).to_json();
        assert_eq!(json["status"], "completed");
        assert_eq!(json["result"]["stdout"], "café \u{fffd}");
        assert_eq!(json["result"]["truncated"]["stdout"], true);
        assert_eq!(json["result"]["truncated"]["stderr"], false);
        assert_eq!(json["result"]["stdout_bytes"], 9);
        assert_eq!(json["result"]["duration_seconds"], 1.5);
        assert_eq!(json["result"]["kill_reason"], Value::Null);
        assert_eq!(json["result"]["kill_detail"], Value::Null);
        assert_eq!(json["result"]["usage"]["cpu_seconds"], 0.25);
        assert_eq!(json["waived"], json!(["memory"]));
        for list in ["egress", "commands", "tools", "enforcement"] {
            assert_eq!(json[list], json!([]), "{list}");
        }
    }

    #[test]
    fn a_kill_says_which_limit_was_met() {
        let reason = KillReason::Memory {
            limit_bytes: 10,
            peak_bytes: 11,
        };
        let json = report(Some(outcome(Some(reason)))).to_json();
        assert_eq!(json["status"], "failed");
        assert_eq!(json["result"]["success"], false);
        assert_eq!(json["result"]["kill_reason"], "memory");
        assert_eq!(
            json["result"]["kill_detail"],
            json!({"limit_bytes": 10, "peak_bytes": 11})
        );

        let json = report(Some(outcome(Some(KillReason::Cancelled)))).to_json();
        assert_eq!(json["status"], "cancelled");
        assert_eq!(json["result"]["kill_detail"], Value::Null);
    }

    #[test]
    fn a_denial_has_no_result() {
        assert_eq!(report(None).to_json()["result"], Value::Null);
    }
}
