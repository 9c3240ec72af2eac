//! A session for one execution: nothing is kept, nothing touches the disk.

use std::sync::Arc;

use brig_audit::Event as Fact;
use brig_policy::Decision;
use tokio::sync::oneshot;

use crate::execution::supervise::{Watched, supervise};
use crate::execution::{Channels, channels};
use crate::shared::{Owner, Shared};
use crate::{
    AgentId, ExecutionId, Instance, Plan, Report, Request, Result, Running, SessionConfig,
    SessionId,
};

pub(crate) async fn start(
    shared: Arc<Shared>,
    agent: &AgentId,
    config: SessionConfig,
    request: Request,
) -> Result<Running> {
    let plan = shared.plan(&config, Vec::new())?;
    let prepared = request.prepare(&config)?;
    let once = Once {
        owner: Owner {
            agent: agent.clone(),
            session: SessionId::random(),
        },
        execution: ExecutionId::random(),
        plan,
        shared,
    };
    once.record(once.plan.created(once.shared.backend.name()))?;
    let work = &prepared.exec.work;
    let decided = once
        .shared
        .decide(&once.owner, &once.execution, work, &once.plan);
    let decision = match decided {
        Ok(decision) => decision,
        Err(error) => {
            once.record(Fact::SessionDestroyed)?;
            return Err(error);
        }
    };
    let instance = match once.shared.backend.create(&once.plan).await {
        Ok(instance) => instance,
        Err(error) => {
            once.shared
                .record_end(&once.owner, &once.execution, Err(&error))?;
            once.record(Fact::SessionDestroyed)?;
            return Err(error);
        }
    };
    let permit = match once
        .shared
        .permit(&once.owner, &once.execution, work, decision.clone())
    {
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
    let running = Running::new(once.execution.clone(), control, events, answer);
    let work = Watched::new(permit, prepared, sender, orders);
    tokio::spawn(async move {
        let _ = done.send(once.carry_out(instance, work, decision).await);
    });
    Ok(running)
}

struct Once {
    owner: Owner,
    execution: ExecutionId,
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
        let gone = instance.destroy().await;
        self.shared
            .record_end(&self.owner, &self.execution, watch.result.as_ref())?;
        self.record(Fact::SessionDestroyed)?;
        gone?;
        let outcome = Some(watch.result?);
        Ok(self
            .shared
            .report(&self.owner, &self.execution, decision, &self.plan, outcome))
    }

    fn record(&self, event: Fact) -> Result<()> {
        self.shared.record(&self.owner, None, event)
    }
}
