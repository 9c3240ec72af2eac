//! Waiting for other processes. Whoever waits for long is told for whom.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long nobody is told.
const SHORT: Duration = Duration::from_secs(1);

static HOOK: OnceLock<fn(&str)> = OnceLock::new();

/// Calls this once an operation of this process has waited for another process for a second, with a text that says for
/// whom: `waiting for process 123, which saves files of the session`. Only the first call of this function counts.
pub fn on_wait(hook: fn(&str)) {
    let _ = HOOK.set(hook);
}

#[derive(Debug)]
pub(crate) struct Wait {
    begun: Instant,
    told: bool,
}

impl Wait {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            told: false,
        }
    }

    /// Whether it took too long.
    pub(crate) fn is_over(&mut self, patience: Duration, whom: impl FnOnce() -> String) -> bool {
        let waited = self.begun.elapsed();
        if waited >= SHORT && !self.told {
            self.told = true;
            if let Some(hook) = HOOK.get() {
                hook(&format!("waiting for {}", whom()));
            }
        }
        waited >= patience
    }
}
