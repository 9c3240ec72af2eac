//! The answer to one execution.

use std::io::{self, Write};

use brig_audit::Approval;
use brig_policy::Decision;
use serde_json::{Value, json};

use crate::{
    AgentId, Attempted, BackendId, Control, ControlState, ExecutionId, ExecutionStatus, KillReason,
    Outcome, Output, SessionId, text::Encoded,
};

/// The answer to an execution that ran.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The id of the execution, as in records.
    pub execution_id: ExecutionId,
    /// The agent it ran for.
    pub agent_id: AgentId,
    /// The session it ran in.
    pub session_id: SessionId,
    /// The backend it ran on.
    pub backend: BackendId,
    /// What ran it within the backend, such as the container runtime, if there are several.
    pub runtime: Option<String>,
    /// Why it was allowed.
    pub decision: Decision,
    /// Who approved it, if the policy requires that.
    pub approval: Option<Approval>,
    /// How it ended, and what it wrote.
    pub outcome: Outcome,
    /// What enforced each control, and how strongly.
    pub enforcement: Vec<ControlState>,
    /// Controls that the operator waived.
    pub waived: Vec<Control>,
    /// What it requested of the network, commands and tools.
    pub attempted: Attempted,
    /// The digest of its receipt: `sha256:` of the canonical JSON of the record, as the log has it.
    pub receipt: Option<String>,
}

impl Report {
    /// Completed, cancelled or failed.
    pub fn status(&self) -> ExecutionStatus {
        self.outcome.status()
    }

    /// The documented object of `--json`.
    pub fn to_json(&self) -> Value {
        self.object(|output| Value::String(Encoded::of(output).to_text()))
    }

    /// The same with more fields, written in pieces, so that captured output is not copied as a
    /// whole.
    pub fn write_json(
        &self,
        more: impl IntoIterator<Item = (&'static str, Value)>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut object = self.object(|_| Value::Null);
        for (key, value) in more {
            object[key] = value;
        }
        let outcome = &self.outcome;
        write_object(&object, out, |key, value, out| match key {
            "result" => write_object(value, out, |key, value, out| match key {
                "stdout" => Encoded::of(&outcome.stdout).write(out),
                "stderr" => Encoded::of(&outcome.stderr).write(out),
                _ => Ok(serde_json::to_writer(out, value)?),
            }),
            _ => Ok(serde_json::to_writer(out, value)?),
        })
    }

    fn object(&self, text: impl Fn(&Output) -> Value) -> Value {
        let answer = Answer {
            execution_id: &self.execution_id,
            agent_id: &self.agent_id,
            session_id: &self.session_id,
            backend: &self.backend,
            runtime: self.runtime.as_deref(),
            status: self.status(),
            decision: &self.decision,
            approval: self.approval.as_ref(),
            result: Some(result(&self.outcome, text)),
            enforcement: &self.enforcement,
            waived: &self.waived,
            attempted: &self.attempted,
            receipt: self.receipt.as_deref(),
        };
        answer.to_json()
    }
}

/// An execution whose sandbox was lost, whose files were not saved, or whose end could not be recorded: what is known
/// of it, and the error.
#[derive(Debug)]
#[non_exhaustive]
pub struct Interrupted {
    /// With the output until then. If the sandbox was lost, its exit code means nothing.
    pub report: Report,
    /// What went wrong.
    pub error: crate::Error,
}

/// What the JSON objects of reports and denials are made of.
pub(crate) struct Answer<'a> {
    pub execution_id: &'a ExecutionId,
    pub agent_id: &'a AgentId,
    pub session_id: &'a SessionId,
    pub backend: &'a BackendId,
    pub runtime: Option<&'a str>,
    pub status: ExecutionStatus,
    pub decision: &'a Decision,
    pub approval: Option<&'a Approval>,
    pub result: Option<Value>,
    pub enforcement: &'a [ControlState],
    pub waived: &'a [Control],
    pub attempted: &'a Attempted,
    pub receipt: Option<&'a str>,
}

impl Answer<'_> {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "execution_id": self.execution_id,
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "backend": self.backend,
            "runtime": self.runtime,
            "status": self.status,
            "decision": {
                "allowed": self.decision.allowed,
                "code": self.decision.code,
                "rule": self.decision.rule,
                "reason": self.decision.reason,
                "approval": self.approval,
            },
            "result": self.result,
            "enforcement": self.enforcement,
            "waived": self.waived,
            "egress": self.attempted.egress,
            "commands": self.attempted.commands,
            "tools": self.attempted.tools,
            "omitted": self.attempted.omitted,
            "totals": self.attempted.totals,
            "receipt": self.receipt,
        })
    }
}

/// Writes an object; `each` writes its values.
fn write_object(
    object: &Value,
    out: &mut dyn Write,
    each: impl Fn(&str, &Value, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut before = b'{';
    for (key, value) in object.as_object().into_iter().flatten() {
        out.write_all(&[before])?;
        before = b',';
        serde_json::to_writer(&mut *out, key)?;
        out.write_all(b":")?;
        each(key, value, out)?;
    }
    out.write_all(b"}")
}

fn result(outcome: &Outcome, text: impl Fn(&Output) -> Value) -> Value {
    json!({
        "success": outcome.success(),
        "exit_code": outcome.exit_code,
        "stdout": text(&outcome.stdout),
        "stderr": text(&outcome.stderr),
        "encoding": {
            "stdout": Encoded::of(&outcome.stdout).name(),
            "stderr": Encoded::of(&outcome.stderr).name(),
        },
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

/// The fields of the reason, without the name, which is in `kill_reason`.
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
    use crate::{Denial, Usage};

    fn report(outcome: Outcome) -> Report {
        Report {
            execution_id: "e1".parse().expect("name"),
            agent_id: "a1".parse().expect("name"),
            session_id: "s1".parse().expect("name"),
            backend: BackendId::of("native"),
            runtime: None,
            decision: decision(true),
            approval: None,
            outcome,
            enforcement: Vec::new(),
            waived: vec![Control::Memory],
            attempted: Attempted::default(),
            receipt: None,
        }
    }

    fn decision(allowed: bool) -> Decision {
        let (code, reason) = ("policy.none", "no policy is loaded");
        match allowed {
            true => Decision::allow(code, reason),
            false => Decision::deny(code, reason),
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
            lost: None,
        }
    }

    #[test]
    fn the_object_has_the_documented_shape() {
        let json = report(outcome(None)).to_json();
        assert_eq!(json["status"], "completed");
        assert_eq!(json["result"]["stdout"], "Y2Fmw6kg/w==");
        assert_eq!(json["result"]["encoding"]["stdout"], "base64");
        assert_eq!(json["result"]["encoding"]["stderr"], "utf-8");
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
    fn it_is_written_as_it_is_built() {
        let mut whole = outcome(None);
        whole.stdout.bytes = (0..=255).cycle().take(300_000).collect();
        whole.stderr.bytes = "é\"\\\u{7f}\u{2028}".repeat(20_000).into_bytes();
        let report = report(whole);
        let mut written = Vec::new();
        let error = json!({"code": "x"});
        let more = [("error", error.clone())];
        report.write_json(more, &mut written).expect("written");
        let mut built = report.to_json();
        built["error"] = error;
        let written: Value = serde_json::from_slice(&written).expect("JSON");
        assert!(written == built, "they differ");
    }

    #[test]
    fn text_that_the_limit_cuts_within_a_character_is_still_text() {
        let mut cut = outcome(None);
        cut.stdout.bytes = "né".as_bytes()[..2].to_vec();
        let json = report(cut.clone()).to_json();
        assert_eq!(json["result"]["stdout"], "n");
        assert_eq!(json["result"]["encoding"]["stdout"], "utf-8");
        // Without the limit, the program itself wrote half a character.
        cut.stdout.total = 2;
        let json = report(cut).to_json();
        assert_eq!(json["result"]["encoding"]["stdout"], "base64");
    }

    #[test]
    fn a_kill_says_which_limit_was_met() {
        let reason = KillReason::Memory {
            limit_bytes: 10,
            peak_bytes: 11,
        };
        let json = report(outcome(Some(reason))).to_json();
        assert_eq!(json["status"], "failed");
        assert_eq!(json["result"]["success"], false);
        assert_eq!(json["result"]["kill_reason"], "memory");
        assert_eq!(
            json["result"]["kill_detail"],
            json!({"limit_bytes": 10, "peak_bytes": 11})
        );

        let json = report(outcome(Some(KillReason::Cancelled))).to_json();
        assert_eq!(json["status"], "cancelled");
        assert_eq!(json["result"]["kill_detail"], Value::Null);
    }

    #[test]
    fn a_denial_has_no_result_and_the_same_keys() {
        let report = report(outcome(None));
        let (execution, agent) = (report.execution_id.clone(), report.agent_id.clone());
        let session = report.session_id.clone();
        let denial = Denial::new(
            execution,
            agent,
            session,
            BackendId::of("native"),
            decision(false),
        )
        .to_json();
        assert_eq!(denial["result"], Value::Null);
        assert_eq!(denial["status"], "failed");
        assert_eq!(denial["decision"]["allowed"], false);
        let keys = |json: &Value| Vec::from_iter(json.as_object().expect("object").keys().cloned());
        assert_eq!(keys(&denial), keys(&report.to_json()));
    }
}
