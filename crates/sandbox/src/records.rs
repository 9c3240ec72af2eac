//! The audit records of one execution, with its receipt.

use std::sync::Arc;
use std::time::Duration;

use brig_audit::canonical::MAX;
use brig_audit::receipt::{self, Receipt};
use brig_audit::{Approval, Event as Fact, Record, Recorder, Verdict};
use brig_policy::Decision;
use brig_reason::ReasonCode;
use jiff::Timestamp;

use crate::execution::Execution;
use crate::request::Work;
use crate::shared::SessionKey;
use crate::{
    Attempted, Attempts, BackendId, Control, Error, ExecutionId, KillReason, Outcome, Plan, Result,
};

#[derive(Debug)]
pub(crate) struct ExecutionRecords {
    session: SessionKey,
    execution: ExecutionId,
    /// The number of this execution within its session.
    step: u64,
    action: &'static str,
    pub code_digest: String,
    pub attempts: Arc<Attempts>,
    /// The digest of the policy that decided.
    pub policy: Option<String>,
    /// What came of a required approval.
    pub approval: Option<Approval>,
    trace: Option<String>,
    started: Timestamp,
}

impl ExecutionRecords {
    pub(crate) fn new(
        session: SessionKey,
        id: ExecutionId,
        step: u64,
        checked: &Execution,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        let secrets = checked.env.iter().map(|(_, value)| value.clone()).collect();
        let attempts = Attempts::new(session.clone(), id.clone(), secrets, recorder);
        Self {
            session,
            execution: id,
            attempts: Arc::new(attempts),
            step,
            action: checked.work.action().name(),
            code_digest: match &checked.work {
                Work::Code { source, .. } => receipt::digest(source),
                Work::Command(argv) => receipt::command_digest(argv),
            },
            policy: None,
            approval: None,
            trace: (checked.trace.as_ref()).map(|trace| trace.as_str().to_owned()),
            started: Timestamp::now(),
        }
    }

    /// It was allowed, and starts.
    pub(crate) fn started(&self, decision: &Decision) -> [Record; 2] {
        let started = Fact::ExecutionStarted {
            action: self.action.into(),
        };
        [self.decided(decision), self.record(started)]
    }

    fn decided(&self, decision: &Decision) -> Record {
        self.record(Fact::Decided {
            allowed: decision.allowed,
            code: decision.code.clone(),
            rule: decision.rule.clone(),
            reason: self.attempts.explain(&decision.reason),
        })
    }

    /// It was not allowed to start.
    pub(crate) fn denied(
        &self,
        decision: &Decision,
        plan: &Plan,
        backend: &BackendId,
    ) -> Vec<Record> {
        let mut receipt = self.receipt(decision, plan, backend);
        receipt.decision = Verdict::DeniedByPolicy;
        vec![
            self.decided(decision),
            self.record(Fact::Receipt(Box::new(receipt))),
        ]
    }

    /// It ended, or could not start.
    pub(crate) fn ended(
        &self,
        decision: &Decision,
        plan: &Plan,
        backend: &BackendId,
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
                receipt.reason = self.attempts.explain(&error.to_string());
                Fact::ExecutionFailed {
                    code: error.code().into(),
                    message: receipt.reason.clone(),
                }
            }
        };
        let totals = self.attempts.unrecorded_totals().into_iter();
        let mut records: Vec<Record> = totals.map(|total| self.record(total)).collect();
        records.push(self.record(end));
        records.push(self.record(Fact::Receipt(Box::new(receipt))));
        records
    }

    /// It was allowed, but the caller stopped waiting before it ran.
    pub(crate) fn abandoned(
        &self,
        decision: &Decision,
        plan: &Plan,
        backend: &BackendId,
    ) -> Vec<Record> {
        let cancelled = KillReason::Cancelled;
        let mut receipt = self.receipt(decision, plan, backend);
        receipt.decision = Verdict::Cancelled;
        receipt.code = cancelled.code().into();
        receipt.reason = "cancelled before it ran".into();
        receipt.kill_reason = Some(cancelled.name().into());
        let end = Fact::ExecutionFinished {
            exit_code: None,
            kill_reason: receipt.kill_reason.clone(),
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
        let kill_reason = outcome.killed.as_ref().map(KillReason::name);
        receipt.decision = Verdict::of(
            kill_reason,
            outcome.success(),
            &receipt.egress,
            &receipt.commands,
        );
        if let Some(killed) = &outcome.killed {
            receipt.code = killed.code().into();
            receipt.reason = format!("ended: {}", killed.name());
        } else if receipt.decision == Verdict::Error {
            receipt.code = ReasonCode::RunFailed.into();
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

    fn receipt(&self, decision: &Decision, plan: &Plan, backend: &BackendId) -> Receipt {
        let Attempted {
            egress,
            commands,
            tools,
            omitted,
            totals,
            ..
        } = self.attempts.listed();
        Receipt {
            step: self.step,
            backend: backend.to_string(),
            policy: self.policy.clone(),
            rule: decision.rule.clone(),
            decision: Verdict::Allowed,
            code: decision.code.clone(),
            reason: self.attempts.explain(&decision.reason),
            approval: self.approval.clone(),
            trace: self.trace.clone(),
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
            totals,
            waived: names(plan.waived()),
        }
    }

    fn record(&self, event: Fact) -> Record {
        self.session.record(Some(&self.execution), event)
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
