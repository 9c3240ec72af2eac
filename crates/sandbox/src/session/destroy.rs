//! The end of a session. It wins over everything that runs in it.

use std::sync::Arc;
use std::time::Duration;

use brig_audit::Event as Fact;
use tokio::time::timeout;

use super::Session;
use super::inner::{Inner, Phase};
use super::live::Slot;
use crate::shared::{Shared, lock};
use crate::store::blocking;
use crate::{Error, KillReason, Result};

/// How long executions may take to say how they ended, before their instance is ended under them.
const FAREWELL: Duration = Duration::from_millis(500);

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
        if !self.doom() {
            self.wait_until(|phase, _| phase == Phase::Destroyed).await;
            return Ok(());
        }
        let quiet = self.wait_until(|_, open| open == 0);
        let _ = timeout(FAREWELL, quiet).await;

        let mut slot = self.slot.lock().await;
        let ended = match slot.live.take() {
            Some(live) => live.instance.destroy().await,
            None => Ok(()),
        };
        let removed = self.remove_folder(&mut slot, shared).await;
        drop(slot);
        let recorded = shared.record(&self.owner, None, Fact::SessionDestroyed);
        self.abandon(shared);
        ended.and(removed).and(recorded)
    }

    async fn remove_folder(&self, slot: &mut Slot, shared: &Shared) -> Result<()> {
        lock(&self.state).busy.detach();
        let home = slot.home.take();
        // If another process took it away, what has the name now is not this session.
        let ours = home.as_ref().map_or(self.durable, |home| home.in_place());
        if !ours {
            return Ok(());
        }
        let store = shared.place.store()?.clone();
        let (agent, id) = self.key();
        // The lock is let go only when there is nothing left to open.
        blocking(move || store.destroy(&agent, &id).map(|_| drop(home))).await
    }

    /// Says whether this call is the one that destroys.
    fn doom(&self) -> bool {
        let mut state = lock(&self.state);
        if state.doomed() {
            return false;
        }
        state.phase = Phase::Destroying;
        state.table.kill_all(&KillReason::Destroyed);
        true
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
