//! The network of a session that is open.

use std::sync::{Arc, Weak};
use std::time::Duration;

use brig_egress::{Layer, LayerKind, Rules};

use super::Session;
use super::inner::Inner;
use crate::config::NetworkConfig;
use crate::shared::{Shared, lock};
use crate::store::NetworkFile;
use crate::{Instance, Result};

/// How soon a change that another process made is seen.
const LOOK: Duration = Duration::from_millis(200);

impl Session {
    /// What it may reach: what it was created with, what was changed since, and what its user allows
    /// and blocks.
    pub fn network(&self) -> Result<NetworkConfig> {
        let owner = &self.inner.owner;
        let store = self.shared.place.durable();
        let file = store.map(|store| store.network_file(&owner.agent, &owner.session));
        self.inner.network_now(&self.shared, file.as_ref())
    }
}

impl Inner {
    pub(super) fn network_now(
        &self,
        shared: &Shared,
        file: Option<&NetworkFile>,
    ) -> Result<NetworkConfig> {
        let mut network = self.config.network.clone();
        network.layers.push(self.own_network(file)?);
        if let Some(user) = &shared.user_network {
            network.replace(user.clone());
        }
        Ok(network)
    }

    /// What was changed of the network since the session was created.
    pub(crate) fn own_network(&self, file: Option<&NetworkFile>) -> Result<Layer> {
        match file {
            Some(file) => file.layer(),
            None => Ok(lock(&self.state).network.clone()),
        }
    }
}

/// Follows changes that other processes make, for as long as the instance lives.
pub(super) fn follow(instance: &Arc<dyn Instance>, file: NetworkFile) {
    let instance: Weak<dyn Instance> = Arc::downgrade(instance);
    // A change since the instance was planned must not be missed, so it is read once in any case.
    let mut seen = None;
    tokio::spawn(async move {
        loop {
            let Some(instance) = instance.upgrade().filter(|instance| instance.is_alive()) else {
                return;
            };
            let stamp = file.stamp();
            // One that is gone, or can't be read, leaves the rules as they are.
            if stamp.is_some()
                && stamp != seen
                && let Some(rules) = instance.network()
                && replace(rules, || file.layer()).is_ok()
            {
                seen = stamp;
            }
            drop(instance);
            tokio::time::sleep(LOOK).await;
        }
    });
}

/// Puts what was changed in the place of what was changed before. Several may do so at a time: each
/// reads again while no other can, so the last one puts what holds then.
pub(crate) fn replace(rules: &Rules, read: impl Fn() -> Result<Layer>) -> Result<()> {
    if rules.current().layers().contains(&read()?) {
        return Ok(());
    }
    let mut done = Ok(());
    rules.change(|layers| match read() {
        Ok(layer) => {
            layers.retain(|other| other.kind != LayerKind::Session);
            layers.push(layer);
        }
        Err(error) => done = Err(error),
    });
    done
}
