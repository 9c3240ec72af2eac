//! What all sessions of one [`crate::Sandbox`] have in common.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brig_audit::{Egress, Event as Fact, Record, Recorder};
use brig_egress::Layer;
use brig_policy::Decider;
use brig_tools::ToolRegistry;
use jiff::Timestamp;

use crate::approvals::Approver;
use crate::backend::Lease;
use crate::directories::Private;
use crate::sandbox::OnPlan;
use crate::session::Inner;
use crate::sessions::operation_failed;
use crate::store::{AtBackend, Head, Storage, Store, blocking};
use crate::{
    AgentId, Backend, Capabilities, Error, ExecutionId, InitialState, Instance, Plan, Result,
    SessionConfig, SessionId, plan,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub backend: Arc<dyn Backend>,
    pub decider: Arc<dyn Decider>,
    pub recorder: Arc<dyn Recorder>,
    /// Who is asked where a policy requires an approval.
    pub approver: Option<Arc<dyn Approver>>,
    /// A directory that no mount may show, if sessions are not kept on disk.
    pub private: Option<PathBuf>,
    /// More directories that no mount may show.
    pub out_of_reach: Vec<Private>,
    /// What the user allows and blocks. Replaces what sessions were created with.
    pub user_network: Option<Layer>,
    pub on_plan: Option<OnPlan>,
    /// What code may call, as far as its policies list it.
    pub tools: ToolRegistry,
    pub storage: Storage,
    pub sessions: Mutex<HashMap<SessionKey, Arc<Inner>>>,
}

/// A panic leaves nothing here half-done, so a poisoned lock may be used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub agent: AgentId,
    pub session: SessionId,
}

impl SessionKey {
    pub(crate) fn new(agent: &AgentId, session: &SessionId) -> Self {
        Self {
            agent: agent.clone(),
            session: session.clone(),
        }
    }

    pub(crate) fn record(&self, execution: Option<&ExecutionId>, event: Fact) -> Record {
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
    /// A session that is open in this process.
    pub(crate) fn session(&self, agent: &AgentId, id: &SessionId) -> Option<Arc<Inner>> {
        let key = SessionKey::new(agent, id);
        lock(&self.sessions).get(&key).cloned()
    }

    /// Refuses what another backend keeps.
    pub(crate) fn is_own(&self, key: &SessionKey, kept: Option<&AtBackend>) -> Result<()> {
        match kept.filter(|kept| kept.backend != *self.backend.id()) {
            Some(kept) => Err(Error::OtherBackend {
                session: key.session.to_string(),
                backend: kept.backend.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Removes what the backend kept of a session that is gone.
    pub(crate) async fn remove_at_backend(
        &self,
        key: &SessionKey,
        store: &Store,
        kept: Option<AtBackend>,
    ) -> Result<()> {
        let Some(kept) = kept else {
            return Ok(());
        };
        if let Some(lease) = kept.lease {
            self.end(key, &lease).await?;
        }
        self.delete_unused_snapshots(store).await
    }

    /// Ends an instance that no process has joined.
    pub(crate) async fn end(&self, key: &SessionKey, lease: &Lease) -> Result<()> {
        let decided = self.backend.end(&lease.handle).await?;
        self.record_unattributed(key, decided).await
    }

    /// Ends an instance of a session.
    pub(crate) async fn destroy(&self, key: &SessionKey, instance: &dyn Instance) -> Result<()> {
        let decided = instance.unattributed().await;
        let ended = instance.destroy().await;
        ended.and(self.record_unattributed(key, decided).await)
    }

    async fn record_unattributed(&self, key: &SessionKey, decided: Vec<Egress>) -> Result<()> {
        if decided.is_empty() {
            return Ok(());
        }
        let facts = decided.into_iter().map(Fact::EgressDecided).collect();
        self.record_all(key, facts).await
    }

    /// Deletes the snapshots that no session and no checkpoint refers to.
    pub(crate) async fn delete_unused_snapshots(&self, store: &Store) -> Result<()> {
        let (store, id) = (store.clone(), self.backend.id().clone());
        for unused in blocking(move || store.take_unused_snapshots(&id)).await? {
            self.backend.delete_snapshot(&unused.snapshot).await?;
            blocking(move || unused.forget()).await?;
        }
        Ok(())
    }

    /// Saves the files of an instance, and keeps its lease.
    pub(crate) async fn save(&self, head: &Head, instance: &dyn Instance) -> Result<()> {
        head.save(instance).await?;
        if let Some(lease) = instance.lease() {
            head.keep_lease(&lease)?;
        }
        if head.is_snapshot() {
            self.delete_unused_snapshots(self.storage.store()?).await?;
        }
        Ok(())
    }

    /// What the backend can do for a config.
    pub(crate) async fn probe(&self, config: &SessionConfig) -> Result<Capabilities> {
        plan::probe(config, self.backend.as_ref()).await
    }

    /// A plan for a new instance without files.
    pub(crate) async fn plan(&self, config: &SessionConfig) -> Result<Plan> {
        let offer = self.probe(config).await?;
        self.plan_with(config, &offer, InitialState::Empty)
    }

    pub(crate) fn plan_with(
        &self,
        config: &SessionConfig,
        offer: &Capabilities,
        initial: InitialState,
    ) -> Result<Plan> {
        let state = self.storage.durable().map(Store::root);
        let state = state.or(self.private.as_deref());
        let private = self.out_of_reach.clone();
        let plan = Plan::of(config, offer, initial, state, private, Some(&self.tools))?;
        if let Some(on_plan) = &self.on_plan {
            on_plan.call(&plan);
        }
        Ok(plan)
    }

    /// Creates an instance. If the backend chose an option of the plan and that does not work, it may choose
    /// again: then the plan is another one.
    pub(crate) async fn create(
        &self,
        config: &SessionConfig,
        mut plan: Arc<Plan>,
    ) -> Result<(Arc<dyn Instance>, Arc<Plan>)> {
        loop {
            let error = match self.backend.create(&plan).await {
                Ok(instance) => return Ok((instance.into(), plan)),
                Err(error) => error,
            };
            if plan.chosen.is_empty() {
                return Err(error);
            }
            let offer = self.probe(config).await?;
            if offer.chosen == plan.chosen {
                return Err(error);
            }
            let saved = plan.saved;
            let next = self.plan_with(config, &offer, plan.initial.clone())?;
            plan = Arc::new(Plan { saved, ..next });
        }
    }

    /// Writes a record about a session, and returns when it is safe.
    pub(crate) fn record(&self, session: &SessionKey, event: Fact) -> Result<()> {
        self.recorder.append(session.record(None, event))?;
        Ok(())
    }

    /// Writes the record of an operation, before it. Where the record may be written though that failed, so is the failure.
    pub(crate) fn announce(&self, session: &SessionKey, of: &str, event: Fact) -> Result<()> {
        self.done(session, of, self.record(session, event))
    }

    /// Adds to the record of an operation, which is written before it, that it failed.
    pub(crate) fn done<T>(&self, session: &SessionKey, of: &str, done: Result<T>) -> Result<T> {
        match &done {
            Ok(_) | Err(Error::Incomplete { .. }) => {}
            // The caller gets the first error.
            Err(error) => drop(self.record(session, operation_failed(of, error))),
        }
        done
    }

    /// Writes records about a session together, and returns when they are safe.
    pub(crate) async fn record_all(&self, session: &SessionKey, facts: Vec<Fact>) -> Result<()> {
        let records = facts.into_iter().map(|fact| session.record(None, fact));
        self.recorder.begin(records.collect()).await?;
        Ok(())
    }
}
