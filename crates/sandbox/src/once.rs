//! A session for one execution: nothing is kept, nothing touches the disk.

use std::sync::Arc;

use brig_audit::Event as Fact;
use brig_policy::Decision;
use tokio::sync::oneshot;

use crate::account::Account;
use crate::execution::supervise::{Watched, supervise};
use crate::execution::{Channels, channels};
use crate::shared::{Owner, Shared};
use crate::{
    AgentId, Error, ExecutionId, Instance, Outcome, Plan, Report, Request, Result, Running,
    SessionConfig, SessionId,
};

pub(crate) async fn start(
    shared: Arc<Shared>,
    agent: &AgentId,
    config: SessionConfig,
    request: Request,
) -> Result<Running> {
    let plan = shared.plan(&config, Vec::new())?;
    let prepared = request.prepare(&config)?;
    let owner = Owner {
        agent: agent.clone(),
        session: SessionId::random(),
    };
    let execution = ExecutionId::random();
    let mut once = Once {
        account: shared.account(&owner, &execution, 0, &prepared.exec),
        plan,
        shared,
    };
    for fact in once.plan.created(once.shared.backend.name()) {
        once.account.before.push(owner.record(None, fact));
    }
    let work = (&prepared.exec.work, &prepared.facts);
    let last = Some(Fact::SessionDestroyed);
    let decision = once
        .shared
        .decide(&mut once.account, work, &once.plan, last)
        .await?;
    let begun = once.shared.begin(&mut once.account)?;
    let instance = match once.shared.backend.create(&once.plan).await {
        Ok(instance) => instance,
        Err(error) => {
            once.ended(&decision, Err(&error)).await?;
            return Err(error);
        }
    };
    let permit = once.shared.permit(begun, &once.account, decision.clone());
    let permit = match permit.await {
        Ok(permit) => permit,
        Err(error) => {
            instance.destroy().await?;
            return Err(error);
        }
    };

    let Channels {
        control,
        orders,
        sender,
        events,
    } = channels(prepared.stream);
    let (done, answer) = oneshot::channel();
    let running = Running::new(execution, control, events, answer);
    let work = Watched::new(permit, prepared, sender, orders);
    tokio::spawn(async move {
        let _ = done.send(once.carry_out(instance, work, decision).await);
    });
    Ok(running)
}

struct Once {
    account: Account,
    plan: Plan,
    shared: Arc<Shared>,
}

impl Once {
    async fn carry_out(
        self,
        instance: Box<dyn Instance>,
        work: Watched,
        decision: Decision,
    ) -> Result<Report> {
        let watch = supervise(instance.as_ref(), work).await;
        // The disk is waited for while the instance is taken down.
        let ended = self.ended(&decision, watch.result.as_ref());
        let (ended, gone) = tokio::join!(ended, instance.destroy());
        ended?;
        gone?;
        let outcome = Some(watch.result?);
        let Self {
            account,
            plan,
            shared,
        } = &self;
        Ok(shared.report(account, decision, plan, outcome))
    }

    async fn ended(&self, decision: &Decision, result: Result<&Outcome, &Error>) -> Result<()> {
        let last = Some(Fact::SessionDestroyed);
        self.shared
            .record_end(&self.account, decision, &self.plan, result, last)
            .await
    }
}
