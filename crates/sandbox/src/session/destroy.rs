//! Destroying a session: everything that runs in it is ended.

use std::sync::Arc;
use std::time::Duration;

use brig_audit::Event as Fact;
use tokio::time::timeout;

use super::Session;
use super::inner::{Inner, Phase};
use super::live::Slot;
use crate::sessions::{destroyed_but, record_destroyed};
use crate::shared::{SessionKey, Shared, lock};
use crate::store::{Removal, blocking};
use crate::{Error, KillReason, Result};

/// How long executions may take to say how they ended, before their instance is ended under them.
const GRACE: Duration = Duration::from_millis(500);

impl Session {
    /// Ends everything in it and removes it. Destroying it again is harmless.
    pub async fn destroy(&self) -> Result<()> {
        let (shared, inner) = (self.shared.clone(), self.inner.clone());
        // A task of its own, so that it comes to its end when the caller stops waiting.
        let task = tokio::spawn(async move { inner.destroy(&shared).await });
        task.await
            .unwrap_or_else(|error| Err(Error::InstanceLost(error.to_string())))
    }
}

impl Inner {
    async fn destroy(self: Arc<Self>, shared: &Shared) -> Result<()> {
        // One at a time: another finds it destroyed, or tries again.
        let _one = self.destroying.lock().await;
        if lock(&self.state).is_destroyed() {
            return Ok(());
        }
        // Nothing is lost that is not on record.
        shared.record(&self.key, Fact::SessionDestroyRequested)?;
        self.begin_destroying();
        let quiet = self.wait_until(|_, open| open == 0);
        let _ = timeout(GRACE, quiet).await;

        let mut slot = self.slot.lock().await;
        let ended = match slot.live.take() {
            Some(live) => shared.destroy(&self.key, live.instance.as_ref()).await,
            None => Ok(()),
        };
        let removed = self.remove_directory(&mut slot, shared).await;
        drop(slot);
        let gone = removed.is_ok() || self.is_gone(shared);
        if !gone {
            // The next attempt begins anew, and so does the next execution.
            let mut state = lock(&self.state);
            state.phase = Phase::Failed;
            state.destroyed_here = false;
            drop(state);
            self.changed.notify_waiters();
            return shared.done(&self.key, "session_destroyed", removed);
        }
        let removed = ended.and(removed);
        let removed = removed.map_err(|error| destroyed_but(&self.key, error));
        let recorded =
            record_destroyed(shared.recorder.as_ref(), &self.key, removed.map(|()| true));
        self.abandon(shared);
        recorded.map(drop)
    }

    /// Whether there is no directory any more, though something of it could not be ended or removed.
    fn is_gone(&self, shared: &Shared) -> bool {
        let store = shared.storage.durable();
        let SessionKey { agent, session } = &self.key;
        store.is_none_or(|store| matches!(store.has(agent, session), Ok(false)))
    }

    async fn remove_directory(&self, slot: &mut Slot, shared: &Shared) -> Result<()> {
        lock(&self.state).busy.detach();
        let home = slot.home.take();
        // If another process took it away, what has the name now is not this session.
        let ours = home.as_ref().map_or(self.durable, |home| home.in_place());
        if !ours {
            return Ok(());
        }
        let store = shared.storage.store()?.clone();
        let SessionKey { agent, session: id } = self.key.clone();
        let kept = store.at_backend(&agent, &id);
        let own = store.clone();
        shared
            .backend
            .forget(&store.session_path(&agent, &id))
            .await;
        // The lock is released only when there is nothing left to open.
        let remove = move || {
            let removal = Removal {
                only: home.as_deref(),
                ..Removal::default()
            };
            own.remove(&agent, &id, removal)
        };
        blocking(remove).await?;
        shared.remove_at_backend(&self.key, &store, kept).await
    }

    /// Ends what runs, and lets nobody in any more.
    fn begin_destroying(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Destroying;
        state.destroyed_here = true;
        state.table.kill_all(&KillReason::Destroyed);
    }

    async fn wait_until(&self, reached: impl Fn(Phase, usize) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = {
                let state = lock(&self.state);
                reached(state.phase, state.open)
            };
            if now {
                return;
            }
            changed.await;
        }
    }
}
