//! Names of containers, from before they are made until they are known to be gone. An engine that
//! fails in between is asked again later.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brig_sandbox::Result;
use tokio::runtime::Handle;

use crate::engine::Engine;

/// A request that nobody waits for any more may still be carried out, so that it is gone now says
/// nothing yet.
const LATER: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// What this process has yet to remove from an engine.
#[derive(Clone, Debug)]
pub struct Leftovers {
    engine: Engine,
    names: Arc<Mutex<HashSet<String>>>,
}

/// A container of this process, there or not. Dropped without having been removed, it is removed
/// by and by.
#[derive(Debug)]
pub struct Name {
    name: String,
    leftovers: Leftovers,
    gone: AtomicBool,
    handle: Handle,
}

impl Leftovers {
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            names: Arc::default(),
        }
    }

    /// A new name. Called inside a runtime.
    pub fn name(&self) -> Name {
        Name {
            name: format!("brig-{}", uuid::Uuid::new_v4().simple()),
            leftovers: self.clone(),
            gone: AtomicBool::new(false),
            handle: Handle::current(),
        }
    }

    /// Tries once more what failed before; returns how many containers there were.
    pub async fn clear(&self) -> Result<usize> {
        let names: Vec<String> = self.names().iter().cloned().collect();
        let mut removed = 0;
        for name in names {
            if self.engine.remove(&name).await? {
                self.names().remove(&name);
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn remove_later(self, name: String) {
        let mut quiet = true;
        for pause in LATER {
            tokio::time::sleep(pause).await;
            match self.engine.remove(&name).await {
                Ok(true) => {
                    self.names().remove(&name);
                    return;
                }
                Ok(false) => {}
                Err(_) => quiet = false,
            }
        }
        if quiet {
            self.names().remove(&name);
        }
    }
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Ends at once whatever runs in it, without waiting.
    pub fn kill(&self) {
        let (engine, name) = (self.leftovers.engine.clone(), self.name.clone());
        self.handle.spawn(async move {
            let options = bollard::query_parameters::KillContainerOptionsBuilder::new();
            let options = options.signal("SIGKILL").build();
            // It may be gone, or never have been; who removes it finds out.
            let _ = engine
                .ask(
                    "end a container",
                    engine.docker.kill_container(&name, Some(options)),
                )
                .await;
        });
    }

    /// Removes it and waits until it is gone. Gone already is as good.
    pub async fn remove(&self) -> Result<()> {
        if !self.gone.load(Ordering::Acquire) {
            self.leftovers.engine.remove(&self.name).await?;
            self.gone.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Acquire) {
            self.leftovers.names().insert(self.name.clone());
            let name = std::mem::take(&mut self.name);
            self.handle.spawn(self.leftovers.clone().remove_later(name));
        }
    }
}
