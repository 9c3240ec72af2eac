//! What all sessions of one [`crate::Sandbox`] have in common.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brig_audit::{Event as Fact, Record, Recorder};
use brig_policy::{Action, Decider, Decision, Request as Question};
use jiff::Timestamp;

use crate::backend::Permit;
use crate::request::Work;
use crate::session::Inner;
use crate::store::{Place, Store};
use crate::{
    AgentId, Backend, Error, ExecutionId, ExecutionStatus, Outcome, Plan, Report, Result,
    SessionConfig, SessionId,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub backend: Arc<dyn Backend>,
    pub decider: Arc<dyn Decider>,
    pub recorder: Arc<dyn Recorder>,
    pub place: Place,
    pub sessions: Mutex<HashMap<(AgentId, SessionId), Arc<Inner>>>,
}

/// Nothing here is left half-done by a panic, so a poisoned lock is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who an execution belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub agent: AgentId,
    pub session: SessionId,
}

impl Shared {
    pub fn plan(&self, config: &SessionConfig, layers: Vec<PathBuf>) -> Result<Plan> {
        let state = self.place.durable().map(Store::root);
        Plan::make_beside(config, self.backend.as_ref(), layers, state)
    }

    pub fn record(
        &self,
        owner: &Owner,
        execution: Option<&ExecutionId>,
        event: Fact,
    ) -> Result<()> {
        self.recorder.append(Record {
            at: Timestamp::now(),
            agent: owner.agent.to_string(),
            session: owner.session.to_string(),
            execution: execution.map(ToString::to_string),
            event,
        })?;
        Ok(())
    }

    /// Decides, and records the decision. A denial is an error.
    pub fn decide(
        &self,
        owner: &Owner,
        execution: &ExecutionId,
        work: &Work,
        plan: &Plan,
    ) -> Result<Decision> {
        let mut question = Question::new(owner.agent.as_str(), action(work));
        match work {
            Work::Code {
                language, source, ..
            } => {
                question.language = Some(language.name());
                question.code = Some(source);
            }
            Work::Command(argv) => question.command = Some(argv),
        }
        let decision = self.decider.decide(&question);
        self.record(
            owner,
            Some(execution),
            Fact::Decided {
                allowed: decision.allowed,
                code: decision.code.clone(),
                rule: decision.rule.clone(),
                reason: decision.reason.clone(),
            },
        )?;
        if decision.allowed {
            return Ok(decision);
        }
        Err(Error::Denied(Box::new(
            self.report(owner, execution, decision, plan, None),
        )))
    }

    /// Records that an execution begins. The only place where a permit is made.
    pub fn permit(
        &self,
        owner: &Owner,
        execution: &ExecutionId,
        work: &Work,
        decision: Decision,
    ) -> Result<Permit> {
        self.record(
            owner,
            Some(execution),
            Fact::ExecutionStarted {
                action: action(work).name().into(),
            },
        )?;
        Ok(Permit {
            execution: execution.clone(),
            decision,
        })
    }

    pub fn record_end(
        &self,
        owner: &Owner,
        execution: &ExecutionId,
        result: Result<&Outcome, &Error>,
    ) -> Result<()> {
        let event = match result {
            Ok(outcome) => Fact::ExecutionFinished {
                exit_code: Some(outcome.exit_code),
                kill_reason: outcome.killed.as_ref().map(|reason| reason.name().into()),
            },
            Err(error) => Fact::ExecutionFailed {
                code: error.code().into(),
                message: error.to_string(),
            },
        };
        self.record(owner, Some(execution), event)
    }

    pub fn report(
        &self,
        owner: &Owner,
        execution: &ExecutionId,
        decision: Decision,
        plan: &Plan,
        outcome: Option<Outcome>,
    ) -> Report {
        Report {
            execution_id: execution.clone(),
            agent_id: owner.agent.clone(),
            session_id: owner.session.clone(),
            backend: self.backend.name(),
            status: outcome
                .as_ref()
                .map_or(ExecutionStatus::Failed, Outcome::status),
            decision,
            outcome,
            enforcement: plan.enforcement().to_vec(),
            waived: plan.waived().to_vec(),
        }
    }
}

fn action(work: &Work) -> Action {
    match work {
        Work::Code { .. } => Action::Execute,
        Work::Command(_) => Action::Run,
    }
}
