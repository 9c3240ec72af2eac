//! The network of a session that is open.

use std::sync::{Arc, Weak};
use std::time::Duration;

use brig_egress::{Layer, LayerKind, Rules};

use super::inner::Inner;
use crate::shared::lock;
use crate::store::NetworkFile;
use crate::{Error, Instance, Result};

/// How soon a change that another process made is seen.
const LOOK: Duration = Duration::from_millis(200);

impl Inner {
    /// What was changed of the network since the session was created.
    pub(super) fn own_network(&self, file: Option<&NetworkFile>) -> Result<Layer> {
        match file {
            Some(file) => file
                .read()
                .map_err(|error| Error::io(format!("session `{}`", self.owner.session), error)),
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
                && let (Some(rules), Ok(layer)) = (instance.network(), file.read())
            {
                replace(rules, layer);
                seen = stamp;
            }
            drop(instance);
            tokio::time::sleep(LOOK).await;
        }
    });
}

/// Puts what was changed in the place of what was changed before.
pub(crate) fn replace(rules: &Rules, layer: Layer) {
    let known = rules.current();
    if known.layers().contains(&layer) {
        return;
    }
    rules.change(|layers| {
        layers.retain(|other| other.kind != LayerKind::Session);
        layers.push(layer);
    });
}
