//! Names of containers, from before they are created until they are known to be removed. If the engine
//! fails in between, the removal is tried again later.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brig_sandbox::Result;
use tokio::runtime::Handle;

use crate::engine::Engine;

/// When a removal is tried again. A create request that was cancelled may still be carried out, so even a
/// missing container is tried again.
const LATER: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// The containers that this process has yet to remove from an engine.
#[derive(Clone, Debug)]
pub(crate) struct Removals {
    engine: Engine,
    names: Arc<Mutex<HashSet<String>>>,
}

/// A container of this process, which may not exist yet or any more. If it is dropped without having been
/// removed, it is removed in the background.
#[derive(Debug)]
pub(crate) struct ContainerName {
    name: String,
    removals: Removals,
    gone: AtomicBool,
    handle: Handle,
}

impl Removals {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            names: Arc::default(),
        }
    }

    /// A new name. To be called in a runtime.
    pub(crate) fn name(&self) -> ContainerName {
        ContainerName {
            name: format!("brig-{}", uuid::Uuid::new_v4().simple()),
            removals: self.clone(),
            gone: AtomicBool::new(false),
            handle: Handle::current(),
        }
    }

    /// Tries failed removals again. Returns how many containers were removed.
    pub(crate) async fn clear(&self) -> Result<usize> {
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

impl ContainerName {
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// Kills everything in it, without waiting.
    pub(crate) fn kill(&self) {
        let (engine, name) = (self.removals.engine.clone(), self.name.clone());
        self.handle.spawn(async move {
            let options = bollard::query_parameters::KillContainerOptionsBuilder::new();
            let options = options.signal("SIGKILL").build();
            // The container may not exist. The removal will find out.
            let _ = engine
                .ask(
                    "end a container",
                    engine.docker.kill_container(&name, Some(options)),
                )
                .await;
        });
    }

    /// Whether the OOM killer ended it, as far as the engine knows.
    pub(crate) async fn was_out_of_memory(&self) -> bool {
        let engine = &self.removals.engine;
        let inspect = engine.docker.inspect_container(&self.name, None);
        let found = engine.ask("inspect a container", inspect).await;
        let state = found.ok().and_then(|found| found.state);
        state.is_some_and(|state| state.oom_killed == Some(true))
    }

    /// Removes it and waits until it is gone. Succeeds if it does not exist.
    pub(crate) async fn remove(&self) -> Result<()> {
        if !self.gone.load(Ordering::Acquire) {
            self.removals.engine.remove(&self.name).await?;
            self.gone.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for ContainerName {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Acquire) {
            self.removals.names().insert(self.name.clone());
            let name = std::mem::take(&mut self.name);
            self.handle.spawn(self.removals.clone().remove_later(name));
        }
    }
}
