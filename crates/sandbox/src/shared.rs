//! What all sessions of one [`crate::Sandbox`] have in common.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brig_audit::{Event as Fact, Pending, Record, Recorder};
use brig_egress::Layer;
use brig_policy::{Action, Decider, Decision, Extra, Request as Question};
use jiff::Timestamp;

use crate::account::Account;
use crate::backend::Permit;
use crate::request::Work;
use crate::session::Inner;
use crate::store::{Place, Store};
use crate::{
    AgentId, Backend, Error, ExecRequest, ExecutionId, ExecutionStatus, Outcome, Plan, Report,
    Result, SessionConfig, SessionId,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub backend: Arc<dyn Backend>,
    pub decider: Arc<dyn Decider>,
    pub recorder: Arc<dyn Recorder>,
    /// A folder that no mount may show, if there is none for sessions.
    pub private: Option<PathBuf>,
    /// What the user allows and blocks, in place of what sessions remember.
    pub user_network: Option<Layer>,
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

impl Owner {
    pub fn record(&self, execution: Option<&ExecutionId>, event: Fact) -> Record {
        Record {
            at: Timestamp::now(),
            agent: self.agent.to_string(),
            session: self.session.to_string(),
            execution: execution.map(ToString::to_string),
            event,
        }
    }
}

impl Shared {
    pub fn plan(&self, config: &SessionConfig, layers: Vec<PathBuf>) -> Result<Plan> {
        let state = self.place.durable().map(Store::root);
        let state = state.or(self.private.as_deref());
        Plan::make_beside(config, self.backend.as_ref(), layers, state)
    }

    /// Keeps a record, and waits until it is safe.
    pub fn record(
        &self,
        owner: &Owner,
        execution: Option<&ExecutionId>,
        event: Fact,
    ) -> Result<()> {
        self.recorder.append(owner.record(execution, event))?;
        Ok(())
    }

    /// Keeps records together, and waits until they are safe.
    pub async fn record_all(&self, owner: &Owner, facts: Vec<Fact>) -> Result<()> {
        let records = facts.into_iter().map(|fact| owner.record(None, fact));
        self.recorder.begin(records.collect()).await?;
        Ok(())
    }

    /// Opens the account of an execution.
    pub fn account(
        &self,
        owner: &Owner,
        execution: &ExecutionId,
        step: u64,
        request: &ExecRequest,
    ) -> Account {
        let recorder = self.recorder.clone();
        let (owner, execution) = (owner.clone(), execution.clone());
        Account::open(owner, execution, step, request, recorder)
    }

    /// Decides. What is allowed is recorded together with its start; a denial is recorded at once,
    /// with `last` after it, and is an error.
    pub async fn decide(
        &self,
        account: &mut Account,
        (work, facts): (&Work, &Extra),
        plan: &Plan,
        last: Option<Fact>,
    ) -> Result<Decision> {
        let mut question = Question::new(account.owner.agent.as_str(), action(work));
        question.extra = Some(facts);
        match work {
            Work::Code {
                language, source, ..
            } => {
                question.language = Some(language.name());
                question.code = Some(source);
            }
            Work::Command(argv) => question.command = Some(argv),
        }
        let mut decision = self.decider.decide(&question);
        account.policy = self.decider.policy_digest();
        if decision.allowed
            && let Some(policies) = &plan.policies
        {
            decision = policies.decide(&question);
            account.policy = policies.policy_digest();
        }
        if decision.allowed {
            account.before.push(account.decided(&decision));
            return Ok(decision);
        }
        let mut records = std::mem::take(&mut account.before);
        records.extend(account.denied(&decision, plan, self.backend.name()));
        records.extend(last.map(|fact| account.owner.record(None, fact)));
        self.recorder.conclude(records).await?;
        let report = self.report(account, decision, plan, None);
        Err(Error::Denied(Box::new(report)))
    }

    /// Begins to record that an execution begins, and what came before, so that an instance can be
    /// started meanwhile.
    pub fn begin(&self, account: &mut Account) -> Result<Pending> {
        let mut records = std::mem::take(&mut account.before);
        records.push(account.begins());
        Ok(self.recorder.begin(records).unless_failed()?)
    }

    /// The right to run, once the beginning is safely on record. The only place where a permit
    /// is made.
    pub async fn permit(
        &self,
        begun: Pending,
        account: &Account,
        decision: Decision,
    ) -> Result<Permit> {
        begun.await?;
        Ok(Permit {
            execution: account.execution.clone(),
            decision,
            attempts: account.attempts.clone(),
        })
    }

    /// Records how an execution ended; `last` is recorded after it.
    pub async fn record_end(
        &self,
        account: &Account,
        decision: &Decision,
        plan: &Plan,
        result: Result<&Outcome, &Error>,
        last: Option<Fact>,
    ) -> Result<()> {
        let mut records = account.ended(decision, plan, self.backend.name(), result);
        records.extend(last.map(|fact| account.owner.record(None, fact)));
        self.recorder.conclude(records).await?;
        account.attempts.complete()
    }

    pub fn report(
        &self,
        account: &Account,
        decision: Decision,
        plan: &Plan,
        outcome: Option<Outcome>,
    ) -> Report {
        Report {
            execution_id: account.execution.clone(),
            agent_id: account.owner.agent.clone(),
            session_id: account.owner.session.clone(),
            backend: self.backend.name(),
            status: outcome
                .as_ref()
                .map_or(ExecutionStatus::Failed, Outcome::status),
            decision,
            outcome,
            enforcement: plan.enforcement().to_vec(),
            waived: plan.waived().to_vec(),
            attempted: account.attempts.listed(),
        }
    }
}

pub(crate) fn action(work: &Work) -> Action {
    match work {
        Work::Code { .. } => Action::Execute,
        Work::Command(_) => Action::Run,
    }
}
