//! How a session comes to be: made anew, found on disk, or forked from another.

use std::sync::Arc;

use brig_audit::Event as Fact;
use jiff::Timestamp;

use super::Session;
use super::inner::{Inner, Phase};
use super::live::{Slot, wait_for_home};
use crate::needs;
use crate::shared::{SessionKey, Shared, lock};
use crate::store::{Home, Removal, SessionRecord, blocking};
use crate::{
    AgentId, Control, Controls, Error, Plan, Result, SessionConfig, SessionId, SessionStatus,
    Strength,
};

impl Session {
    pub(crate) async fn create(
        shared: Arc<Shared>,
        agent: AgentId,
        id: SessionId,
        config: SessionConfig,
    ) -> Result<Self> {
        let plan = shared.plan(&config).await?;
        let store = shared.storage.durable().cloned();
        if store.is_some() && config.workspace.is_none() {
            can_save(&config, &plan)?;
        }
        let created = plan.created(shared.backend.id());
        let key = SessionKey { agent, session: id };
        let inner = Inner::new(key, config, Timestamp::now(), store.is_some(), plan);
        let session = Self::of(shared, Arc::new(inner));
        let mut unfinished = Unfinished(None);
        // Locked until everything exists: others that find the name meanwhile wait here.
        let mut slot = session.inner.slot.lock().await;
        session.inner.register(&session.shared)?;
        unfinished.0 = Some(&session);
        if let Some(store) = store {
            let record = session.inner.new_record(session.shared.backend.id());
            let home = blocking(move || store.create(record)).await?;
            session.inner.move_in(&mut slot, home)?;
        }
        let shared = &session.shared;
        let made = async {
            shared.record_all(&session.inner.key, created).await?;
            session.inner.live_in(&mut slot, shared).await?;
            made(&slot)
        };
        let made = made.await;
        let made = shared.done(&session.inner.key, "session_created", made);
        drop(slot);
        unfinished.ends(made)?;
        Ok(session)
    }

    /// The one of this process, or one from disk, when no other process has it open.
    pub(crate) async fn open(shared: Arc<Shared>, agent: &AgentId, id: &SessionId) -> Result<Self> {
        let find = || shared.session(agent, id);
        let missing = || Error::NoSession {
            agent: agent.to_string(),
            session: id.to_string(),
        };
        loop {
            if let Some(inner) = find() {
                return Ok(Self {
                    shared: shared.clone(),
                    inner,
                });
            }
            let store = shared.storage.durable().ok_or_else(missing)?;
            match wait_for_home(store, agent, id, || find().is_some()).await? {
                Some(home) => return Self::opened(shared.clone(), *home).await,
                None => continue,
            }
        }
    }

    pub(crate) async fn opened(shared: Arc<Shared>, home: Home) -> Result<Self> {
        let SessionRecord {
            agent,
            id,
            created,
            backend,
            config,
            ..
        } = home.record.clone();
        if backend != *shared.backend.id() {
            return Err(Error::OtherBackend {
                session: id.to_string(),
                backend,
            });
        }
        let plan = shared.plan(&config).await?;
        let key = SessionKey { agent, session: id };
        let inner = Inner::new(key, config, created, true, plan);
        let session = Self::of(shared, Arc::new(inner));
        let mut slot = session.inner.slot.lock().await;
        session.inner.move_in(&mut slot, home)?;
        session.inner.enter(Phase::Open)?;
        session.inner.register(&session.shared)?;
        drop(slot);
        Ok(session)
    }

    /// A session on layers of another.
    pub(super) async fn forked(
        &self,
        id: SessionId,
        make: impl FnOnce(SessionRecord) -> Result<Home> + Send + 'static,
        facts: Vec<Fact>,
    ) -> Result<Self> {
        let source = &self.inner;
        let key = SessionKey::new(&source.key.agent, &id);
        let plan = self.shared.plan(&source.config).await?;
        let created = plan.created(self.shared.backend.id());
        let config = source.config.clone();
        let inner = Inner::new(key, config, Timestamp::now(), source.durable, plan);
        let session = Self::of(self.shared.clone(), Arc::new(inner));
        let mut unfinished = Unfinished(None);
        let mut slot = session.inner.slot.lock().await;
        session.inner.register(&session.shared)?;
        unfinished.0 = Some(&session);
        let record = session.inner.new_record(self.shared.backend.id());
        let home = blocking(move || make(record)).await?;
        session.inner.move_in(&mut slot, home)?;
        let facts = created.into_iter().chain(facts).collect();
        let shared = &session.shared;
        let recorded = shared.record_all(&session.inner.key, facts).await;
        let entered = recorded.and_then(|()| session.inner.enter(Phase::Open));
        let made = entered.and_then(|()| made(&slot));
        let made = shared.done(&session.inner.key, "session_created", made);
        drop(slot);
        unfinished.ends(made)?;
        Ok(session)
    }
}

/// The last step: from here on the session is there.
fn made(slot: &Slot) -> Result<()> {
    slot.home.as_ref().map_or(Ok(()), |home| home.created())
}

impl Inner {
    fn move_in(&self, slot: &mut Slot, home: Home) -> Result<()> {
        lock(&self.state).busy.attach(home.busy_file()?);
        slot.home = Some(Box::new(home));
        Ok(())
    }

    /// Also notices when another process destroyed the session.
    pub(crate) fn status_in(&self, shared: &Shared) -> SessionStatus {
        let status = self.status();
        let settled = matches!(status, SessionStatus::Ready | SessionStatus::Failed);
        match shared.storage.durable() {
            Some(store) if settled && !store.exists(&self.key.agent, &self.key.session) => {
                SessionStatus::Destroyed
            }
            _ => status,
        }
    }
}

/// A session that is kept needs a backend that can save, or the operator's word.
pub(super) fn can_save(config: &SessionConfig, plan: &Plan) -> Result<()> {
    let controls = Controls(plan.enforcement().to_vec());
    match needs::unmet(Control::Checkpoint, Strength::Observed, &controls) {
        Some(unmet) if !config.waive.contains(&Control::Checkpoint) => {
            Err(Error::Unenforceable(vec![unmet]))
        }
        _ => Ok(()),
    }
}

/// Takes a session back that never came to be, also when its maker stopped waiting.
struct Unfinished<'a>(Option<&'a Session>);

impl Unfinished<'_> {
    /// After the last step. The slot must be free.
    fn ends(mut self, made: Result<()>) -> Result<()> {
        if matches!(made, Ok(()) | Err(Error::Incomplete { .. })) {
            self.0 = None;
        }
        made
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let Some(Session { shared, inner }) = self.0 else {
            return;
        };
        // Only its own directory: a name that was taken belongs to another session.
        let home = inner
            .slot
            .try_lock()
            .ok()
            .and_then(|mut slot| slot.home.take());
        if let (Some(store), Some(home)) = (shared.storage.durable(), home) {
            let only = Removal {
                only: Some(&home),
                ..Removal::default()
            };
            let _ = store.remove(&inner.key.agent, &inner.key.session, only);
        }
        inner.abandon(shared);
    }
}
