//! A sandbox for one execution: its files are not kept, and it is destroyed at the end.

use std::sync::Arc;

use brig_audit::Event as Fact;

use crate::lifecycle::{self, Scope};
use crate::session::Live;
use crate::shared::{SessionKey, Shared};
use crate::{
    AgentId, ExecutionHandle, ExecutionId, Plan, Request, Result, SessionConfig, SessionId,
};

struct Once {
    shared: Arc<Shared>,
    session: SessionKey,
    execution: ExecutionId,
    config: SessionConfig,
    plan: Arc<Plan>,
}

pub(crate) async fn start(
    shared: Arc<Shared>,
    agent: &AgentId,
    config: SessionConfig,
    request: Request,
) -> Result<ExecutionHandle> {
    let plan = shared.plan(&config).await?.for_one_execution();
    let (execution, ends) = request.check(&config)?;
    let scope = Once {
        shared,
        session: SessionKey::new(agent, &SessionId::random()),
        execution: ExecutionId::random(),
        config,
        plan: Arc::new(plan),
    };
    lifecycle::start(scope, execution, ends).await
}

impl Scope for Once {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn session(&self) -> &SessionKey {
        &self.session
    }

    fn execution(&self) -> &ExecutionId {
        &self.execution
    }

    fn step(&self) -> Result<u64> {
        Ok(0)
    }

    fn plan(&self) -> Arc<Plan> {
        self.plan.clone()
    }

    fn first_records(&self) -> Vec<Fact> {
        self.plan.created(self.shared.backend.id())
    }

    fn last_record(&self) -> Option<Fact> {
        Some(Fact::SessionDestroyed)
    }

    async fn acquire(&self) -> Result<Live> {
        let plan = self.plan.clone();
        let (instance, plan) = self.shared.create(&self.config, plan).await?;
        Ok(Live::new(instance, plan, None))
    }

    async fn release(&self, live: &Live, _ran: bool) -> Result<()> {
        live.instance.destroy().await
    }
}
