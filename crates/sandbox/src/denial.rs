//! The answer to an execution that a policy denied.

use brig_audit::{Approval, ApprovalOutcome};
use brig_policy::Decision;
use serde_json::Value;

use crate::report::Answer;
use crate::{
    AgentId, Attempted, BackendId, Control, ControlState, ExecutionId, ExecutionStatus, SessionId,
};

/// A policy denied an execution: nothing was started. This is recorded.
#[derive(Clone, Debug)]
pub struct Denial {
    execution_id: ExecutionId,
    agent_id: AgentId,
    session_id: SessionId,
    backend: BackendId,
    decision: Decision,
    approval: Option<Approval>,
    enforcement: Vec<ControlState>,
    waived: Vec<Control>,
    receipt: Option<String>,
}

impl Denial {
    /// For those who answer in place of a sandbox. `decision` says why.
    pub fn new(
        execution_id: ExecutionId,
        agent_id: AgentId,
        session_id: SessionId,
        backend: BackendId,
        decision: Decision,
    ) -> Self {
        Self {
            execution_id,
            agent_id,
            session_id,
            backend,
            decision,
            approval: None,
            enforcement: Vec::new(),
            waived: Vec::new(),
            receipt: None,
        }
    }

    pub(crate) fn with_controls(mut self, enforced: &[ControlState], waived: &[Control]) -> Self {
        self.enforcement = enforced.to_vec();
        self.waived = waived.to_vec();
        self
    }

    pub(crate) fn with_approval(mut self, approval: Option<Approval>) -> Self {
        self.approval = approval;
        self
    }

    pub(crate) fn with_receipt(mut self, digest: Option<String>) -> Self {
        self.receipt = digest;
        self
    }

    /// The digest of its receipt, as in [`Report::receipt`](crate::Report::receipt).
    pub fn receipt(&self) -> Option<&str> {
        self.receipt.as_deref()
    }

    /// What came of the approval that the policy requires, if it does.
    pub fn approval(&self) -> Option<&Approval> {
        self.approval.as_ref()
    }

    /// The id under which it was recorded.
    pub fn execution_id(&self) -> &ExecutionId {
        &self.execution_id
    }

    /// The agent that asked.
    pub fn agent_id(&self) -> &AgentId {
        &self.agent_id
    }

    /// The session it was for.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// The backend it would have run on.
    pub fn backend(&self) -> &BackendId {
        &self.backend
    }

    /// The whole decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The stable reason code, such as `policy.rule`.
    pub fn code(&self) -> &str {
        &self.decision.code
    }

    /// The rule that decided, if one did.
    pub fn rule(&self) -> Option<&str> {
        self.decision.rule.as_deref()
    }

    /// Why, in a sentence for people.
    pub fn reason(&self) -> &str {
        &self.decision.reason
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        let outcome = self.approval.as_ref().map(|approval| approval.outcome);
        match outcome {
            Some(ApprovalOutcome::Unattended) => {
                return "give the operator a way to answer: a terminal, `brig approvals`, or an approver of \
                        the library"
                    .into();
            }
            Some(ApprovalOutcome::TimedOut) => {
                return "ask the operator before you run it again; they answer on the terminal or with \
                        `brig approvals`"
                    .into();
            }
            Some(_) => return "do not run it again unless the operator asks for it".into(),
            None => {}
        }
        let what = match self.rule() {
            Some(rule) => format!("rule `{rule}`"),
            None => "the policy".into(),
        };
        format!("the same request will be denied again, unless the operator changes {what}")
    }

    /// What would have been enforced, and by what.
    pub fn enforcement(&self) -> &[ControlState] {
        &self.enforcement
    }

    /// Controls that the operator waived.
    pub fn waived(&self) -> &[Control] {
        &self.waived
    }

    /// The documented object of `--json`: the same keys as [`crate::Report::to_json`].
    pub fn to_json(&self) -> Value {
        let answer = Answer {
            execution_id: &self.execution_id,
            agent_id: &self.agent_id,
            session_id: &self.session_id,
            backend: &self.backend,
            runtime: None,
            status: ExecutionStatus::Failed,
            decision: &self.decision,
            approval: self.approval.as_ref(),
            result: None,
            enforcement: &self.enforcement,
            waived: &self.waived,
            attempted: &Attempted::default(),
            receipt: self.receipt.as_deref(),
        };
        answer.to_json()
    }
}
