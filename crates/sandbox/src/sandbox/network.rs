//! Changing what a session may reach.

use brig_egress::Layer;

use super::Sandbox;
use crate::sessions::{change_network, network_changed};
use crate::shared::{SessionKey, lock};
use crate::store::Opening;
use crate::{AgentId, Error, Result, Session, SessionId};

impl Sandbox {
    /// Changes what a session may reach, beside what it was created with. An open session follows
    /// at once, whichever process has it: connections that are no longer allowed are closed. One
    /// that was started without any network gets it with its next start.
    pub async fn change_network(
        &self,
        agent: &AgentId,
        id: &SessionId,
        change: impl FnOnce(&mut Layer),
    ) -> Result<Layer> {
        let missing = || Error::NoSession {
            agent: agent.to_string(),
            session: id.to_string(),
        };
        let inner = self.shared.session(agent, id);
        if let (None, Some(store)) = (&inner, self.shared.storage.durable()) {
            let kept = store
                .at_backend(agent, id)
                .filter(|kept| kept.lease.is_some());
            self.shared
                .is_own(&SessionKey::new(agent, id), kept.as_ref())?;
        }
        let key = SessionKey::new(agent, id);
        let after = match (self.shared.storage.durable(), &inner) {
            (Some(store), _) => {
                let recorder = self.shared.recorder.as_ref();
                change_network(store, recorder, &key, change)?.ok_or_else(missing)?
            }
            (None, Some(inner)) => {
                let own = &mut lock(&inner.state).network;
                let mut after = own.clone();
                change(&mut after);
                if after != *own {
                    // What can't be recorded is not changed.
                    self.shared.record(&key, network_changed(own, &after))?;
                    own.clone_from(&after);
                }
                after
            }
            (None, None) => return Err(missing()),
        };
        if let Some(inner) = &inner
            && let Some(live) = &inner.slot.lock().await.live
        {
            let store = self.shared.storage.durable();
            let file = store.map(|store| store.network_file(agent, id));
            let read = || inner.own_network(file.as_ref());
            live.network.apply(live.instance.as_ref(), read).await?;
        } else if inner.is_none() {
            self.change_joined(agent, id).await?;
        }
        Ok(after)
    }
}

impl Sandbox {
    /// An instance that goes on without a process has nobody else to change its rules.
    async fn change_joined(&self, agent: &AgentId, id: &SessionId) -> Result<()> {
        let Some(store) = self.shared.storage.durable() else {
            return Ok(());
        };
        let kept = store.at_backend(agent, id);
        if kept.is_none_or(|kept| kept.lease.is_none()) {
            return Ok(());
        }
        // A process that has the session open follows the change itself.
        if let Opening::Open(home) = store.try_open(agent, id)? {
            let session = Session::opened(self.shared.clone(), *home).await?;
            session.update_instance().await?;
        }
        Ok(())
    }
}
