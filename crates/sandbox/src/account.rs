//! What is put on record about one execution.

use std::sync::Arc;
use std::time::Duration;

use brig_audit::canonical::MAX;
use brig_audit::receipt::{self, Receipt};
use brig_audit::{Event as Fact, Record, Recorder, Verdict};
use brig_policy::Decision;
use jiff::Timestamp;

use crate::request::Work;
use crate::shared::{Owner, action};
use crate::{Attempted, Attempts, Control, Error, ExecRequest, ExecutionId, Outcome, Plan, Result};

#[derive(Debug)]
pub(crate) struct Account {
    pub owner: Owner,
    pub execution: ExecutionId,
    /// The number of this execution within its session.
    step: u64,
    action: &'static str,
    code_digest: String,
    pub attempts: Arc<Attempts>,
    /// Records that wait for the one of the start, to be written with it.
    pub before: Vec<Record>,
    /// The digest of the policy that decided.
    pub policy: Option<String>,
    started: Timestamp,
}

impl Account {
    pub fn open(
        owner: Owner,
        execution: ExecutionId,
        step: u64,
        request: &ExecRequest,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        let secrets = request.env.iter().map(|(_, value)| value.clone()).collect();
        let attempts = Attempts::new(owner.clone(), execution.clone(), secrets, recorder);
        Self {
            owner,
            execution,
            attempts: Arc::new(attempts),
            before: Vec::new(),
            step,
            action: action(&request.work).name(),
            code_digest: match &request.work {
                Work::Code { source, .. } => receipt::digest(source),
                Work::Command(argv) => receipt::command_digest(argv),
            },
            policy: None,
            started: Timestamp::now(),
        }
    }

    pub fn begins(&self) -> Record {
        self.record(Fact::ExecutionStarted {
            action: self.action.into(),
        })
    }

    pub fn decided(&self, decision: &Decision) -> Record {
        self.record(Fact::Decided {
            allowed: decision.allowed,
            code: decision.code.clone(),
            rule: decision.rule.clone(),
            reason: self.attempts.redact(&decision.reason),
        })
    }

    /// It was not allowed to begin.
    pub fn denied(&self, decision: &Decision, plan: &Plan, backend: &str) -> Vec<Record> {
        let mut receipt = self.receipt(decision, plan, backend);
        receipt.decision = Verdict::DeniedByPolicy;
        vec![
            self.decided(decision),
            self.record(Fact::Receipt(Box::new(receipt))),
        ]
    }

    /// It came to an end, or could not begin.
    pub fn ended(
        &self,
        decision: &Decision,
        plan: &Plan,
        backend: &str,
        result: Result<&Outcome, &Error>,
    ) -> Vec<Record> {
        let mut receipt = self.receipt(decision, plan, backend);
        let end = match result {
            Ok(outcome) => {
                self.fill(&mut receipt, outcome);
                Fact::ExecutionFinished {
                    exit_code: receipt.exit_code,
                    kill_reason: receipt.kill_reason.clone(),
                }
            }
            Err(error) => {
                receipt.decision = Verdict::Error;
                receipt.code = error.code().into();
                receipt.reason = self.attempts.redact(&error.to_string());
                Fact::ExecutionFailed {
                    code: error.code().into(),
                    message: receipt.reason.clone(),
                }
            }
        };
        vec![
            self.record(end),
            self.record(Fact::Receipt(Box::new(receipt))),
        ]
    }

    fn fill(&self, receipt: &mut Receipt, outcome: &Outcome) {
        let secrets = self.attempts.secrets();
        let output =
            |output: &crate::Output| receipt::Output::of(&output.bytes, output.total, &secrets);
        let kill_reason = outcome.killed.as_ref().map(crate::KillReason::name);
        receipt.decision = Verdict::of(
            kill_reason,
            outcome.success(),
            &receipt.egress,
            &receipt.commands,
        );
        if let Some(reason) = kill_reason {
            receipt.code = format!("run.{reason}");
            receipt.reason = format!("ended: {reason}");
        } else if receipt.decision == Verdict::Error {
            receipt.code = "run.failed".into();
            receipt.reason = format!("exit code {}", outcome.exit_code);
        }
        receipt.duration_us = microseconds(outcome.duration);
        receipt.exit_code = Some(outcome.exit_code);
        receipt.signal = outcome.signal;
        receipt.kill_reason = kill_reason.map(str::to_owned);
        receipt.usage = receipt::Usage {
            cpu_us: microseconds(outcome.usage.cpu),
            peak_memory_bytes: outcome.usage.peak_memory_bytes.min(MAX),
        };
        receipt.stdout = output(&outcome.stdout);
        receipt.stderr = output(&outcome.stderr);
    }

    fn receipt(&self, decision: &Decision, plan: &Plan, backend: &str) -> Receipt {
        let Attempted {
            egress,
            commands,
            tools,
            omitted,
            ..
        } = self.attempts.listed();
        Receipt {
            step: self.step,
            backend: backend.into(),
            policy: self.policy.clone(),
            rule: decision.rule.clone(),
            decision: Verdict::Allowed,
            code: decision.code.clone(),
            reason: self.attempts.redact(&decision.reason),
            action: self.action.into(),
            code_digest: self.code_digest.clone(),
            started: self.started,
            duration_us: 0,
            exit_code: None,
            signal: None,
            kill_reason: None,
            usage: receipt::Usage::default(),
            stdout: receipt::Output::default(),
            stderr: receipt::Output::default(),
            egress,
            commands,
            tools,
            omitted,
            waived: names(plan.waived()),
        }
    }

    fn record(&self, event: Fact) -> Record {
        self.owner.record(Some(&self.execution), event)
    }
}

fn names(controls: &[Control]) -> Vec<String> {
    controls
        .iter()
        .map(|control| control.name().into())
        .collect()
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).map_or(MAX, |count| count.min(MAX))
}
