//! Rules that may change while connections are open.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Layer, RuleSet};

/// The rules of a session. Clones are the same rules.
#[derive(Clone, Debug)]
pub struct Rules(Arc<watch::Sender<Arc<RuleSet>>>);

impl Rules {
    /// Starts with these rules.
    pub fn new(rules: RuleSet) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(rules))))
    }

    /// The rules in force now. Later changes make a new set; this one stays as it is.
    pub fn current(&self) -> Arc<RuleSet> {
        self.0.borrow().clone()
    }

    /// Changes the layers at once and for all; returns the new generation. Connections that are no
    /// longer allowed are closed.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Layer>)) -> u64 {
        self.0.send_modify(|rules| {
            let mut layers = rules.layers.clone();
            change(&mut layers);
            *rules = Arc::new(RuleSet::build(layers, rules.open, rules.generation + 1));
        });
        self.0.borrow().generation
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<RuleSet>> {
        self.0.subscribe()
    }
}

impl From<RuleSet> for Rules {
    fn from(rules: RuleSet) -> Self {
        Self::new(rules)
    }
}
