//! Decide, record, run, save, record, answer.

use std::sync::Arc;
use std::time::Duration;

use brig_policy::{Decision, Extra};
use tokio::sync::oneshot;

use super::Session;
use super::inner::Inner;
use super::live::Live;
use super::ticket::Ticket;
use crate::account::Account;
use crate::backend::Permit;
use crate::execution::supervise::{Watched, killed, supervise};
use crate::execution::{Channels, channels};
use crate::shared::{Owner, Shared, lock};
use crate::{ExecRequest, ExecutionId, KillReason, Language, Report, Request, Result, Running};

impl Session {
    /// Runs something, once. A denial is [`crate::Error::Denied`].
    pub async fn start(&self, request: Request) -> Result<Running> {
        let prepared = request.prepare(&self.inner.config)?;
        let Channels {
            control,
            orders,
            sender,
            events,
        } = channels(prepared.stream);
        let mut ticket = Ticket::take(&self.inner, control.clone())?;
        let begun = self
            .begin_execution(&ticket.id, &prepared.exec, &prepared.facts)
            .await;
        let (live, permit, account) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                ticket.fail(&error);
                return Err(error);
            }
        };
        ticket.started();

        let (done, answer) = oneshot::channel();
        let running = Running::new(ticket.id.clone(), control, events, answer);
        let decision = permit.decision().clone();
        let work = Watched::new(permit, prepared, sender, orders);
        let (shared, inner) = (self.shared.clone(), self.inner.clone());
        tokio::spawn(async move {
            let result = carry_out(&shared, &inner, &account, live, work, decision).await;
            ticket.finish(&result);
            let _ = done.send(result);
        });
        Ok(running)
    }

    /// Source code in a fresh interpreter, to its end.
    pub async fn execute_code(
        &self,
        language: Language,
        source: impl Into<Vec<u8>>,
    ) -> Result<Report> {
        self.start(Request::code(language, source))
            .await?
            .wait()
            .await
    }

    /// A program and its arguments, to its end.
    pub async fn run(&self, command: Vec<String>) -> Result<Report> {
        self.start(Request::command(command)).await?.wait().await
    }

    async fn begin_execution(
        &self,
        id: &ExecutionId,
        request: &ExecRequest,
        facts: &Extra,
    ) -> Result<(Live, Permit, Account)> {
        let (shared, owner) = (&self.shared, &self.inner.owner);
        let mut account = shared.account(owner, id, self.inner.next_step(shared)?, request);
        let plan = lock(&self.inner.state).plan.clone();
        let decision = shared
            .decide(&mut account, (&request.work, facts), &plan, None)
            .await?;
        let begun = shared.begin(&mut account)?;
        let live = match self.inner.live(shared).await {
            Ok(live) => live,
            Err(error) => {
                shared
                    .record_end(&account, &decision, &plan, Err(&error), None)
                    .await?;
                return Err(error);
            }
        };
        let permit = shared.permit(begun, &account, decision).await?;
        Ok((live, permit, account))
    }
}

async fn carry_out(
    shared: &Arc<Shared>,
    inner: &Arc<Inner>,
    account: &Account,
    live: Live,
    work: Watched,
    decision: Decision,
) -> Result<Report> {
    let watch = supervise(live.instance.as_ref(), work).await;
    if watch.lost {
        live.give_up();
    }
    let mut result = watch.result;
    if result.is_err() && live.is_lost() && inner.was_destroyed(shared) {
        // Destroy wins over what runs; that is an outcome, not a failure.
        result = Ok(killed(KillReason::Destroyed, Duration::ZERO));
    }
    let save = async {
        match &result {
            Ok(_) if !live.is_lost() => inner.save(shared, &live).await,
            _ => Ok(()),
        }
    };
    // The disk is waited for while the files are mirrored.
    let ended = shared.record_end(account, &decision, &live.plan, result.as_ref(), None);
    let (ended, saved) = tokio::join!(ended, save);
    ended?;
    let outcome = result?;
    saved?;
    Ok(shared.report(account, decision, &live.plan, Some(outcome)))
}

impl Inner {
    /// Mirrors the files to disk, if they are kept: nothing that was answered is lost.
    pub(super) async fn save(&self, shared: &Shared, live: &Live) -> Result<()> {
        let Some(head) = &live.head else {
            return Ok(());
        };
        let _one_at_a_time = self.saving.lock().await;
        match head.save(live.instance.as_ref()).await {
            Err(_) if self.was_destroyed(shared) => Ok(()),
            other => other,
        }
    }

    /// The number of the next execution, whichever process it is in.
    fn next_step(&self, shared: &Shared) -> Result<u64> {
        let Owner { agent, session } = &self.owner;
        let kept = match shared.place.durable() {
            Some(store) if self.durable => store.next_step(agent, session)?,
            _ => None,
        };
        Ok(kept.unwrap_or_else(|| lock(&self.state).next_step()))
    }

    /// By this process or by another.
    fn was_destroyed(&self, shared: &Shared) -> bool {
        if lock(&self.state).doomed() {
            return true;
        }
        let store = shared.place.durable();
        store.is_some_and(|store| !store.exists(&self.owner.agent, &self.owner.session))
    }
}
