//! The life of one execution, the same for every backend, in a session or in a sandbox of its own:
//! decide, record, create, permit, run, record, answer. What differs is the [`Scope`].

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_audit::{Approval, Event as Fact, Record, Recorder};
use brig_policy::{Decider, Decision};
use tokio::sync::{mpsc, oneshot};

use crate::approvals::{self, Asker, Subject};
use crate::execution::supervise::supervise;
use crate::execution::{Ends, ExecSignal, Execution};
use crate::records::ExecutionRecords;
use crate::session::Live;
use crate::shared::{SessionKey, Shared};
use crate::tools::{Caller, ToolGate};
use crate::{
    Attempts, Denial, Error, ExecutionHandle, ExecutionId, Interrupted, KillReason, Outcome, Plan,
    Report, Result,
};

/// What an execution belongs to: where its instance comes from, and what becomes of the instance and
/// its files at the end.
pub(crate) trait Scope: Send + Sync + 'static {
    fn shared(&self) -> &Shared;

    fn session(&self) -> &SessionKey;

    fn execution(&self) -> &ExecutionId;

    /// The number of this execution within its session.
    fn step(&self) -> Result<u64>;

    /// The plan to decide under.
    fn plan(&self) -> Arc<Plan>;

    /// Recorded before the decision.
    fn first_records(&self) -> Vec<Fact> {
        Vec::new()
    }

    /// Recorded after the end.
    fn last_record(&self) -> Option<Fact> {
        None
    }

    /// The instance to run in. The start is being written to the log meanwhile.
    fn acquire(&self) -> impl Future<Output = Result<Live>> + Send;

    /// The program runs.
    fn started(&self) {}

    /// Whether somebody destroyed the session meanwhile.
    fn was_destroyed(&self) -> bool {
        false
    }

    /// Saves the files or destroys the instance. The end is being written to the log meanwhile.
    /// `ran`: whether there is an outcome.
    fn release(&self, live: &Live, ran: bool) -> impl Future<Output = Result<()>> + Send;

    /// What the caller is told, and what is recorded, if that fails after the program ran.
    fn not_released(&self, error: Error) -> (Error, Option<Fact>) {
        (error, None)
    }

    /// Always called once the result is known, also if the execution never started.
    fn finished(&mut self, _result: Result<&Report, &Error>) {}
}

/// Proof that an execution was allowed and that this was recorded. It can be created only in this
/// module, so no backend can run anything without it.
#[derive(Debug)]
pub struct Permit {
    execution: ExecutionId,
    decision: Decision,
    attempts: Arc<Attempts>,
    tools: Option<Arc<ToolGate>>,
}

impl Permit {
    /// The execution that may run.
    pub fn execution(&self) -> &ExecutionId {
        &self.execution
    }

    /// Why it may run.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Where to report what the execution requests of the network, commands and tools.
    pub fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }

    /// Where the execution calls tools. `None` if there are none.
    pub fn tools(&self) -> Option<&Arc<ToolGate>> {
        self.tools.as_ref()
    }
}

/// Starts an execution. A denial is [`Error::Denied`].
pub(crate) async fn start<S: Scope>(
    mut scope: S,
    execution: Execution,
    ends: Ends,
) -> Result<ExecutionHandle> {
    let allowed = match allow(&scope, execution).await {
        Ok(allowed) => allowed,
        Err(error) => {
            scope.finished(Err(&error));
            return Err(error);
        }
    };
    scope.started();
    let (done, answer) = oneshot::channel();
    let handle = ExecutionHandle::new(scope.execution().clone(), ends, answer);
    tokio::spawn(async move {
        let result = run(&scope, allowed).await;
        scope.finished(result.as_ref());
        let _ = done.send(result);
    });
    Ok(handle)
}

/// An execution that may run, and the instance to run it in.
struct Allowed {
    execution: Execution,
    permit: Permit,
    records: ExecutionRecords,
    live: Live,
}

async fn allow<S: Scope>(scope: &S, mut execution: Execution) -> Result<Allowed> {
    let shared = scope.shared();
    let (session, id) = (scope.session().clone(), scope.execution().clone());
    let recorder = shared.recorder.clone();
    let mut records = ExecutionRecords::new(session, id, scope.step()?, &execution, recorder);
    let plan = scope.plan();
    let (mut decision, policy) = decide(shared, scope.session(), &execution, &plan);
    records.policy = policy;
    let mut first: Vec<_> = (scope.first_records().into_iter())
        .map(|fact| scope.session().record(None, fact))
        .collect();
    if decision.needs_approval {
        let abandoned = AbandonGuard::new(shared, || {
            let decision = approvals::abandoned(&decision);
            let mut due = records.denied(&decision, &plan, shared.backend.id());
            due.extend(last_record(scope));
            due
        });
        if let Err(error) = shared.recorder.begin(std::mem::take(&mut first)).await {
            abandoned.disarm();
            return Err(error.into());
        }
        let approval = approve(scope, &mut execution, &plan, &records, &decision).await?;
        abandoned.disarm();
        decision = approvals::decision(
            &decision,
            &approval,
            approvals::timeout(plan.policies.as_deref()),
        );
        records.approval = Some(approval);
    }
    if !decision.allowed {
        let denied = records.denied(&decision, &plan, shared.backend.id());
        let receipt = receipt_digest(&denied);
        first.extend(denied);
        first.extend(last_record(scope));
        shared.recorder.conclude(first).await?;
        let SessionKey { agent, session } = scope.session().clone();
        let id = scope.execution().clone();
        let denial = Denial::new(id, agent, session, shared.backend.id().clone(), decision)
            .with_controls(plan.enforcement(), plan.waived())
            .with_approval(records.approval)
            .with_receipt(receipt);
        return Err(Error::Denied(Box::new(denial)));
    }
    first.extend(records.started(&decision));
    let started = shared.recorder.begin(first).unless_failed()?;
    let abandoned = AbandonGuard::new(shared, || {
        let mut due = records.abandoned(&decision, &plan, shared.backend.id());
        due.extend(last_record(scope));
        due
    });
    let live = match scope.acquire().await {
        Ok(live) => live,
        Err(error) => {
            abandoned.disarm();
            record_end(scope, &records, &decision, &plan, Err(&error)).await?;
            return Err(error);
        }
    };
    let started = started.await;
    abandoned.disarm();
    if let Err(error) = started {
        scope.release(&live, false).await?;
        return Err(error.into());
    }
    let permit = Permit {
        execution: scope.execution().clone(),
        decision,
        attempts: records.attempts.clone(),
        tools: tool_gate(scope, &execution, &live.plan, &records.attempts),
    };
    Ok(Allowed {
        execution,
        permit,
        records,
        live,
    })
}

/// Waits for the answer of who is asked. The time limit of the execution does not run yet.
async fn approve<S: Scope>(
    scope: &S,
    execution: &mut Execution,
    plan: &Plan,
    records: &ExecutionRecords,
    decision: &Decision,
) -> Result<Approval> {
    let asker = Asker {
        session: scope.session(),
        execution: scope.execution(),
        approver: scope.shared().approver.as_ref(),
        timeout: approvals::timeout(plan.policies.as_deref()),
        attempts: &records.attempts,
        id: approvals::new_id(),
    };
    let since = Instant::now();
    let subject = Subject::of_work(&execution.work, &records.code_digest);
    tokio::select! {
        approval = asker.ask(subject, decision) => approval,
        () = killed(&mut execution.signals) => Ok(approvals::cancelled(&asker.id, since)),
    }
}

async fn killed(signals: &mut mpsc::UnboundedReceiver<ExecSignal>) {
    loop {
        match signals.recv().await {
            Some(ExecSignal::Kill(_)) => return,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

/// Records the end of an execution if the caller stops waiting for its start: then the future that holds this
/// is dropped.
struct AbandonGuard<'a, F: FnOnce() -> Vec<Record>> {
    recorder: &'a dyn Recorder,
    due: Option<F>,
}

impl<'a, F: FnOnce() -> Vec<Record>> AbandonGuard<'a, F> {
    /// `due` makes the records when they are needed: they say when that was.
    fn new(shared: &'a Shared, due: F) -> Self {
        Self {
            recorder: shared.recorder.as_ref(),
            due: Some(due),
        }
    }

    fn disarm(mut self) {
        self.due = None;
    }
}

impl<F: FnOnce() -> Vec<Record>> Drop for AbandonGuard<'_, F> {
    fn drop(&mut self) {
        let due = self.due.take().map_or_else(Vec::new, |due| due());
        for record in due {
            // The process may end next, so each is written at once. An error could not be reported to anybody.
            let _ = self.recorder.note(record);
        }
    }
}

async fn run<S: Scope>(scope: &S, allowed: Allowed) -> Result<Report> {
    let Allowed {
        execution,
        permit,
        records,
        live,
    } = allowed;
    let decision = permit.decision().clone();
    let approval = records.approval.clone();
    let tools = permit.tools().cloned();
    let supervised = supervise(live.instance.as_ref(), permit, execution).await;
    if let Some(tools) = tools {
        tools.close();
    }
    if supervised.lost {
        live.mark_lost();
    }
    let mut result = supervised.result;
    let is_lost = match &result {
        Ok(outcome) => outcome.lost.is_some(),
        Err(_) => live.is_lost(),
    };
    if is_lost && scope.was_destroyed() {
        // Destroying a session ends its executions: that is an outcome, not a failure.
        let destroyed = Outcome::killed(KillReason::Destroyed, Duration::ZERO);
        result = Ok(match result {
            Ok(known) => Outcome {
                killed: destroyed.killed,
                lost: None,
                ..known
            },
            Err(_) => destroyed,
        });
    }
    let lost = result.as_ref().ok();
    let lost = lost.and_then(|outcome| outcome.lost.clone());
    let lost = lost.map(Error::InstanceLost);
    let ended = match &lost {
        Some(lost) => Err(lost),
        None => result.as_ref(),
    };
    let (recorded, released) = tokio::join!(
        record_end(scope, &records, &decision, &live.plan, ended),
        scope.release(&live, ended.is_ok()),
    );
    let killed = ended.is_ok_and(|outcome| outcome.killed.is_some());
    let unreleased = match released {
        // Nobody takes the files of an execution that was killed for saved.
        Err(Error::NoSession { .. } | Error::InstanceLost(_)) if killed => None,
        Err(error) if ended.is_ok() => Some(not_released(scope, error).await),
        _ => None,
    };
    let (receipt, unrecorded) = match recorded {
        Ok(receipt) => (receipt, None),
        Err(error) => (None, Some(error)),
    };
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => return Err(unrecorded.unwrap_or(error)),
    };
    let SessionKey { agent, session } = scope.session().clone();
    let report = Report {
        execution_id: scope.execution().clone(),
        agent_id: agent,
        session_id: session,
        backend: scope.shared().backend.id().clone(),
        runtime: live.instance.runtime().map(str::to_owned),
        decision,
        approval,
        outcome,
        enforcement: live.plan.enforcement().to_vec(),
        waived: live.plan.waived().to_vec(),
        attempted: records.attempts.listed(),
        receipt,
    };
    // What is known of the execution is reported with the error.
    match unrecorded.or(lost).or(unreleased) {
        Some(error) => Err(Error::Interrupted(Box::new(Interrupted { report, error }))),
        None => Ok(report),
    }
}

/// The execution took place, but what belongs after it failed.
async fn not_released<S: Scope>(scope: &S, error: Error) -> Error {
    let (error, fact) = scope.not_released(error);
    let Some(fact) = fact else { return error };
    let record = scope.session().record(Some(scope.execution()), fact);
    match scope.shared().recorder.conclude(vec![record]).await {
        Ok(_) => error,
        Err(unrecorded) => unrecorded.into(),
    }
}

/// The sandbox's own decider first, then the policies of the session; the stricter answer holds. Also
/// returns the digest of the policy that decided.
fn decide(
    shared: &Shared,
    session: &SessionKey,
    execution: &Execution,
    plan: &Plan,
) -> (Decision, Option<String>) {
    let question = (execution.work).question(&session.agent, &execution.facts);
    let decision = shared.decider.decide(&question);
    match &plan.policies {
        Some(policies) if decision.allowed || decision.needs_approval => (
            decision.strictest(policies.decide(&question)),
            policies.policy_digest(),
        ),
        _ => (decision, shared.decider.policy_digest()),
    }
}

fn tool_gate<S: Scope>(
    scope: &S,
    execution: &Execution,
    plan: &Plan,
    attempts: &Arc<Attempts>,
) -> Option<Arc<ToolGate>> {
    let tools = plan.tools().clone();
    if tools.is_empty() {
        return None;
    }
    let caller = Caller {
        agent: scope.session().agent.clone(),
        facts: execution.facts.clone(),
        decider: scope.shared().decider.clone(),
        policies: plan.policies.clone(),
        session: scope.session().clone(),
        execution: scope.execution().clone(),
        approver: scope.shared().approver.clone(),
    };
    Some(Arc::new(ToolGate::new(tools, caller, attempts.clone())))
}

async fn record_end<S: Scope>(
    scope: &S,
    records: &ExecutionRecords,
    decision: &Decision,
    plan: &Plan,
    result: Result<&Outcome, &Error>,
) -> Result<Option<String>> {
    let shared = scope.shared();
    let mut all = records.ended(decision, plan, shared.backend.id(), result);
    let receipt = receipt_digest(&all);
    all.extend(last_record(scope));
    shared.recorder.conclude(all).await?;
    records.attempts.complete()?;
    Ok(receipt)
}

/// The receipt is the last record of an execution.
fn receipt_digest(records: &[Record]) -> Option<String> {
    brig_audit::fit::digest(records.last()?)
}

fn last_record<S: Scope>(scope: &S) -> Option<Record> {
    let fact = scope.last_record()?;
    Some(scope.session().record(None, fact))
}
