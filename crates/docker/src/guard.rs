//! Watching over one container from outside: the end of it, and its limits.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use brig_sandbox::link::{Guard, Mark};
use brig_sandbox::{Error, KillReason, Plan, Result};
use brig_wire::Usage;
use tokio::sync::watch;

use crate::leftovers::Name;
use crate::limits::OWN_PROCESSES;
use crate::runtime::Runtime;
use crate::stream::LastWords;

/// A program that is refused this many processes is a bomb.
const BOMB: u64 = 1000;

#[derive(Debug)]
pub struct DockerGuard {
    container: Name,
    words: LastWords,
    /// What the guest tells of its container.
    usage: Mutex<Option<watch::Receiver<Usage>>>,
    limits: Watched,
    /// Whether an execution was counted already.
    counted: AtomicBool,
    /// Whether the workspace is a folder of the host, which saves itself.
    host_workspace: bool,
    disk_limit: u64,
}

/// The limits, and whether a control group holds them.
#[derive(Clone, Copy, Debug)]
struct Watched {
    memory: u64,
    processes: u32,
    held: bool,
}

impl Watched {
    /// Which of them is broken.
    fn broken(&self, usage: Usage, since: Mark) -> Option<KillReason> {
        let processes = usage.processes.saturating_sub(OWN_PROCESSES);
        let memory = usage.memory_kills > since.memory_kills
            || (!self.held && usage.memory_bytes > self.memory);
        if memory {
            return Some(self.memory_reason(usage));
        }
        let refused = usage.refused.saturating_sub(since.refused) > BOMB;
        let crowded = !self.held && processes > self.processes;
        (refused || crowded).then_some(KillReason::Processes {
            limit: self.processes,
        })
    }

    fn memory_reason(&self, usage: Usage) -> KillReason {
        KillReason::Memory {
            limit_bytes: self.memory,
            peak_bytes: usage.peak_bytes,
        }
    }
}

impl DockerGuard {
    pub fn new(container: Name, words: LastWords, plan: &Plan, runtime: &Runtime) -> Self {
        let limits = plan.limits();
        Self {
            container,
            words,
            usage: Mutex::new(None),
            limits: Watched {
                memory: limits.memory_bytes.value,
                processes: limits.processes.value,
                held: !runtime.without_cgroups,
            },
            counted: AtomicBool::new(false),
            host_workspace: plan.workspace().is_some(),
            disk_limit: limits.disk_bytes.value,
        }
    }

    fn told(&self) -> Option<watch::Receiver<Usage>> {
        let usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.clone()
    }

    fn usage(&self) -> Usage {
        self.told().map(|told| *told.borrow()).unwrap_or_default()
    }
}

#[async_trait]
impl Guard for DockerGuard {
    fn hears(&self, usage: watch::Receiver<Usage>) {
        let mut told = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(usage);
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn start_failure(&self) -> Option<Error> {
        let problem = self.words.text();
        (!problem.is_empty()).then(|| Error::Setup {
            step: "start the guest in its container".into(),
            problem,
        })
    }

    fn mark(&self) -> Mark {
        let usage = self.usage();
        Mark {
            memory_kills: usage.memory_kills,
            refused: usage.refused,
        }
    }

    async fn breach(&self, since: Mark) -> KillReason {
        if let Some(mut told) = self.told() {
            while told.changed().await.is_ok() {
                let usage = *told.borrow_and_update();
                if let Some(reason) = self.limits.broken(usage, since) {
                    return reason;
                }
            }
        }
        // The guest is gone, which others notice.
        std::future::pending().await
    }

    fn verdict(&self, since: Mark) -> Option<KillReason> {
        let usage = self.usage();
        (usage.memory_kills > since.memory_kills).then(|| self.limits.memory_reason(usage))
    }

    fn peak_memory(&self) -> Option<u64> {
        Some(self.usage().peak_bytes)
    }

    /// The guest tells of the most since its beginning.
    fn forget_peak(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }

    fn largest_file(&self) -> u64 {
        if self.host_workspace {
            u64::MAX
        } else {
            self.disk_limit
        }
    }

    fn process_id(&self) -> Option<u32> {
        None
    }

    /// Of a folder of the host; others are copied out by the guest.
    async fn save(&self, _into: &Path) -> Result<()> {
        Ok(())
    }

    fn kill(&self) {
        self.container.kill();
    }

    async fn release(&self) -> Result<()> {
        self.container.remove().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Watched = Watched {
        memory: 1000,
        processes: 10,
        held: true,
    };

    #[test]
    fn what_a_control_group_holds_is_broken_when_it_says_so() {
        let since = Mark {
            memory_kills: 1,
            refused: 5,
        };
        let quiet = Usage {
            memory_kills: 1,
            refused: 5 + BOMB,
            memory_bytes: 2000,
            peak_bytes: 3000,
            processes: 20,
        };
        assert_eq!(LIMITS.broken(quiet, since), None);
        let killed = Usage {
            memory_kills: 2,
            ..quiet
        };
        let reason = KillReason::Memory {
            limit_bytes: 1000,
            peak_bytes: 3000,
        };
        assert_eq!(LIMITS.broken(killed, since), Some(reason));
        let bomb = Usage {
            refused: 6 + BOMB,
            ..quiet
        };
        let reason = KillReason::Processes { limit: 10 };
        assert_eq!(LIMITS.broken(bomb, since), Some(reason));
    }

    #[test]
    fn what_nobody_holds_is_watched() {
        let limits = Watched {
            held: false,
            ..LIMITS
        };
        let within = Usage {
            memory_bytes: 1000,
            processes: 10 + OWN_PROCESSES,
            ..Usage::default()
        };
        assert_eq!(limits.broken(within, Mark::default()), None);
        let large = Usage {
            memory_bytes: 1001,
            ..within
        };
        assert!(matches!(
            limits.broken(large, Mark::default()),
            Some(KillReason::Memory { .. })
        ));
        let many = Usage {
            processes: 11 + OWN_PROCESSES,
            ..within
        };
        assert!(matches!(
            limits.broken(many, Mark::default()),
            Some(KillReason::Processes { .. })
        ));
    }
}
