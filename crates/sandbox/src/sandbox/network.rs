//! Changing what a session may reach.

use brig_audit::Event as Fact;
use brig_egress::{Layer, Rule};

use super::Sandbox;
use crate::session::replace_network;
use crate::shared::{Owner, lock};
use crate::{AgentId, Error, Result, SessionId};

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
        let inner = lock(&self.shared.sessions)
            .get(&(agent.clone(), id.clone()))
            .cloned();
        // What can't be recorded is not changed.
        let record = |before: &Layer, after: &Layer| {
            let owner = Owner {
                agent: agent.clone(),
                session: id.clone(),
            };
            self.shared.record(&owner, None, changed(before, after))
        };
        let after = match (self.shared.place.durable(), &inner) {
            (Some(store), _) => store
                .change_network(agent, id, change, record)?
                .ok_or_else(missing)?,
            (None, Some(inner)) => {
                let own = &mut lock(&inner.state).network;
                let mut after = own.clone();
                change(&mut after);
                if after != *own {
                    record(own, &after)?;
                    own.clone_from(&after);
                }
                after
            }
            (None, None) => return Err(missing()),
        };
        if let Some(inner) = &inner
            && let Some(live) = &inner.slot.lock().await.live
            && let Some(rules) = live.instance.network()
        {
            let store = self.shared.place.durable();
            let file = store.map(|store| store.network_file(agent, id));
            replace_network(rules, || inner.own_network(file.as_ref()))?;
        }
        Ok(after)
    }
}

fn changed(before: &Layer, after: &Layer) -> Fact {
    let signed = |layer: &Layer| -> Vec<String> {
        let shown = |sign: &'static str| move |rule: &Rule| format!("{sign}{rule}");
        let allow = layer.allow.iter().map(shown(""));
        allow.chain(layer.deny.iter().map(shown("!"))).collect()
    };
    let (before, after) = (signed(before), signed(after));
    let without = |all: &[String], known: &[String]| -> Vec<String> {
        let new = all.iter().filter(|one| !known.contains(one));
        new.cloned().collect()
    };
    Fact::AllowlistChanged {
        layer: "session".into(),
        added: without(&after, &before),
        removed: without(&before, &after),
    }
}
