//! Decide, record, run, record, answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brig_policy::Decision;
use tokio::sync::oneshot;

use super::Session;
use super::inner::{Inner, Live, Ticket};
use crate::backend::Permit;
use crate::execution::supervise::{Watched, killed, supervise};
use crate::execution::{Channels, channels};
use crate::request::Work;
use crate::shared::{Shared, lock};
use crate::{ExecutionId, KillReason, Language, Outcome, Report, Request, Result, Running};

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
        let (live, permit) = match self.begin(&ticket.id, &prepared.exec.work).await {
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
            let result = carry_out(&shared, &inner, &ticket.id, live, work, decision).await;
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

    async fn begin(&self, id: &ExecutionId, work: &Work) -> Result<(Live, Permit)> {
        let owner = &self.inner.owner;
        let plan = lock(&self.inner.state).plan.clone();
        let decision = self.shared.decide(owner, id, work, &plan)?;
        let live = match self.inner.live(&self.shared).await {
            Ok(live) => live,
            Err(error) => {
                self.shared.record_end(owner, id, Err(&error))?;
                return Err(error);
            }
        };
        let permit = self.shared.permit(owner, id, work, decision)?;
        Ok((live, permit))
    }
}

async fn carry_out(
    shared: &Arc<Shared>,
    inner: &Arc<Inner>,
    id: &ExecutionId,
    live: Live,
    work: Watched,
    decision: Decision,
) -> Result<Report> {
    let watch = supervise(live.instance.as_ref(), work).await;
    if watch.lost {
        live.lost.store(true, Ordering::Release);
    }
    let result = watch
        .result
        .or_else(|error| lost_to_destroy(inner, watch.lost).ok_or(error));
    shared.record_end(&inner.owner, id, result.as_ref())?;
    Ok(shared.report(&inner.owner, id, decision, &live.plan, Some(result?)))
}

/// Destroy wins over what runs; that is an outcome, not a failure.
fn lost_to_destroy(inner: &Inner, lost: bool) -> Option<Outcome> {
    let doomed = lost && lock(&inner.state).doomed();
    doomed.then(|| killed(KillReason::Destroyed, Duration::ZERO))
}
