//! The network of a session that is open.

use std::sync::{Arc, Weak};
use std::time::Duration;

use brig_egress::Layer;

use super::Session;
use super::inner::Inner;
use crate::config::NetworkConfig;
use crate::shared::{Shared, lock};
use crate::store::NetworkFile;
use crate::{Instance, Result};

/// How soon a change that another process made is noticed.
const INTERVAL: Duration = Duration::from_millis(200);

impl Session {
    /// What it may reach: what it was created with, what was changed since, and what its user allows
    /// and blocks.
    pub fn network(&self) -> Result<NetworkConfig> {
        let key = &self.inner.key;
        let store = self.shared.storage.durable();
        let file = store.map(|store| store.network_file(&key.agent, &key.session));
        self.inner.network_now(&self.shared, file.as_ref())
    }
}

impl Session {
    /// Joins the instance that another process left, which gives it the rules of now.
    pub(crate) async fn update_instance(&self) -> Result<()> {
        self.inner.live(&self.shared).await?;
        self.close().await
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

/// Changes the rules of one instance, one change at a time: the rules are read from where they are
/// kept and put in force while no other change can come in between. So the newest always win.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkUpdates(Arc<tokio::sync::Mutex<()>>);

impl NetworkUpdates {
    /// Follows changes that other processes make, as long as the instance lives.
    pub(crate) fn follow(&self, instance: &Arc<dyn Instance>, file: NetworkFile) {
        let instance: Weak<dyn Instance> = Arc::downgrade(instance);
        let updates = self.clone();
        // The file may have changed since the instance was planned, so it is read at once.
        let mut seen = None;
        tokio::spawn(async move {
            loop {
                let Some(instance) = instance.upgrade().filter(|instance| instance.is_alive())
                else {
                    return;
                };
                let stamp = file.stamp();
                // A file that is gone, or can't be read, leaves the rules as they are.
                if stamp.is_some()
                    && stamp != seen
                    && updates.apply(&*instance, || file.layer()).await.is_ok()
                {
                    seen = stamp;
                }
                drop(instance);
                tokio::time::sleep(INTERVAL).await;
            }
        });
    }

    /// Puts the layer that `read` returns in force, if the instance has a network.
    pub(crate) async fn apply(
        &self,
        instance: &dyn Instance,
        read: impl Fn() -> Result<Layer>,
    ) -> Result<()> {
        let _one_at_a_time = self.0.lock().await;
        let Some(rules) = instance.network().await? else {
            return Ok(());
        };
        let layer = read()?;
        if rules.layers().contains(&layer) {
            return Ok(());
        }
        instance.change_network(layer).await
    }
}

/// Gives an instance that was joined the rules of now: layers that changed since are replaced, and
/// those that are gone are emptied.
pub(super) async fn update(instance: &dyn Instance, network: &NetworkConfig) -> Result<()> {
    let Some(rules) = instance.network().await? else {
        return Ok(());
    };
    let kinds = |layers: &[Layer], kind| layers.iter().any(|layer| layer.kind == kind);
    let gone = (rules.layers().iter())
        .filter(|layer| !kinds(&network.layers, layer.kind))
        .map(|layer| Layer::new(layer.kind));
    let changed = (network.layers.iter())
        .filter(|layer| !rules.layers().contains(layer))
        .cloned();
    for layer in gone.chain(changed).collect::<Vec<_>>() {
        instance.change_network(layer).await?;
    }
    Ok(())
}
