//! Watches one container: its limits and its end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use brig_guest_host::link::{Guard, Mark, Written};
use brig_sandbox::{Error, KillReason, Plan, Result};
use brig_wire::{KernelIdentity, Usage};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::engine::Facts;
use crate::limits::OWN_PROCESSES;
use crate::proof::ExpectedKernel;
use crate::removals::ContainerName;
use crate::runtime::Runtime;
use crate::stream::StderrTail;

/// A guest that watches limits tells the usage once a second. So many times as long without a word, it is taken for
/// silent.
const SILENCE: u32 = 10;
const REPORT: Duration = Duration::from_secs(1);

/// A program with this many failed forks is a fork bomb.
const BOMB: u64 = 1000;

#[derive(Debug)]
pub(crate) struct DockerGuard {
    container: ContainerName,
    words: StderrTail,
    kernel: ExpectedKernel,
    /// The usage that the guest reports.
    usage: Mutex<Option<watch::Receiver<Usage>>>,
    limits: WatchedLimits,
    /// Whether an execution was counted already.
    counted: AtomicBool,
    /// Whether the workspace is a host directory, which need not be saved.
    host_workspace: bool,
    disk_limit: u64,
    most_cpus: Option<f64>,
}

/// The limits, and whether a control group enforces exactly them.
#[derive(Clone, Copy, Debug)]
struct WatchedLimits {
    memory: u64,
    processes: u32,
    held: bool,
}

impl WatchedLimits {
    /// The limit that was exceeded.
    fn exceeded(&self, usage: Usage, since: Mark) -> Option<KillReason> {
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
    pub(crate) fn new(
        container: ContainerName,
        words: StderrTail,
        plan: &Plan,
        runtime: &Runtime,
        kernel: ExpectedKernel,
        facts: &Facts,
    ) -> Self {
        let limits = plan.limits();
        Self {
            container,
            words,
            kernel,
            usage: Mutex::new(None),
            limits: WatchedLimits {
                memory: limits.memory_bytes.value,
                processes: limits.processes.value,
                held: !runtime.counts_inside(),
            },
            counted: AtomicBool::new(false),
            host_workspace: plan.workspace().is_some(),
            disk_limit: limits.disk_bytes.value,
            most_cpus: most_cpus(runtime, limits.cpus.value, facts.processors),
        }
    }

    fn usage_receiver(&self) -> Option<watch::Receiver<Usage>> {
        let usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.clone()
    }

    fn usage(&self) -> Usage {
        self.usage_receiver()
            .map(|told| *told.borrow())
            .unwrap_or_default()
    }
}

#[async_trait]
impl Guard for DockerGuard {
    fn watch_usage(&self, usage: watch::Receiver<Usage>) {
        let mut told = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(usage);
    }

    fn ready(&self, kernel: Option<&KernelIdentity>) -> Result<()> {
        self.kernel.check(kernel)
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
        if let Some(mut told) = self.usage_receiver() {
            loop {
                let usage = match next_report(&mut told).await {
                    Report::Usage(usage) => usage,
                    Report::End => break,
                    // Nobody else enforces the limits.
                    Report::Silence if !self.limits.held => {
                        let silent = SILENCE * REPORT;
                        return KillReason::Unobserved {
                            silent_ms: silent.as_millis().try_into().unwrap_or(u64::MAX),
                        };
                    }
                    Report::Silence => continue,
                };
                if let Some(reason) = self.limits.exceeded(usage, since) {
                    return reason;
                }
            }
        }
        // The guest is gone, which is noticed where its answers are read.
        std::future::pending().await
    }

    fn verdict(&self, since: Mark) -> Option<KillReason> {
        let usage = self.usage();
        (usage.memory_kills > since.memory_kills).then(|| self.limits.memory_reason(usage))
    }

    /// If the OOM killer ended the guest itself, only the engine knows.
    async fn loss(&self, since: Mark) -> Option<KillReason> {
        if let Some(reason) = self.verdict(since) {
            return Some(reason);
        }
        let killed = self.container.was_out_of_memory().await;
        killed.then(|| self.limits.memory_reason(self.usage()))
    }

    fn peak_memory(&self) -> Option<u64> {
        Some(self.usage().peak_bytes)
    }

    /// The guest reports the peak since its start.
    fn forget_peak(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }

    fn most_cpus(&self) -> Option<f64> {
        self.most_cpus
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

    fn runtime(&self) -> Option<&str> {
        Some(self.kernel.runtime())
    }

    /// A host directory need not be saved. Other files are copied out through the guest.
    async fn save(&self, _into: &Path, _written: Written) -> Result<()> {
        Ok(())
    }

    fn kill(&self) {
        self.container.kill();
    }

    async fn release(&self) -> Result<()> {
        self.container.remove().await
    }
}

enum Report {
    Usage(Usage),
    Silence,
    End,
}

/// Waits in steps: on a machine that is so busy that this process does not get to run, or that slept, a step takes
/// longer, and the guest has that time too.
async fn next_report(told: &mut watch::Receiver<Usage>) -> Report {
    for _ in 0..SILENCE {
        match timeout(REPORT, told.changed()).await {
            Ok(Ok(())) => return Report::Usage(*told.borrow_and_update()),
            Ok(Err(_)) => return Report::End,
            Err(_) => {}
        }
    }
    Report::Silence
}

/// gVisor counts a program that waits for a processor as running.
fn most_cpus(runtime: &Runtime, limit: f64, processors: u32) -> Option<f64> {
    let all = (processors > 0).then_some(f64::from(processors));
    let limit = (!runtime.without_cgroups).then_some(limit);
    let most = [all, limit].into_iter().flatten().reduce(f64::min);
    most.filter(|_| runtime.counts_inside())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Kind;

    const LIMITS: WatchedLimits = WatchedLimits {
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
        assert_eq!(LIMITS.exceeded(quiet, since), None);
        let killed = Usage {
            memory_kills: 2,
            ..quiet
        };
        let reason = KillReason::Memory {
            limit_bytes: 1000,
            peak_bytes: 3000,
        };
        assert_eq!(LIMITS.exceeded(killed, since), Some(reason));
        let bomb = Usage {
            refused: 6 + BOMB,
            ..quiet
        };
        let reason = KillReason::Processes { limit: 10 };
        assert_eq!(LIMITS.exceeded(bomb, since), Some(reason));
    }

    #[tokio::test]
    async fn a_guest_that_says_nothing_is_silent() {
        let (tell, mut told) = watch::channel(Usage::default());
        tell.send_replace(Usage {
            processes: 3,
            ..Usage::default()
        });
        let report = next_report(&mut told).await;
        assert!(matches!(report, Report::Usage(Usage { processes: 3, .. })));
        let begun = tokio::time::Instant::now();
        assert!(matches!(next_report(&mut told).await, Report::Silence));
        assert!(begun.elapsed() >= SILENCE * REPORT);
        drop(tell);
        assert!(matches!(next_report(&mut told).await, Report::End));
    }

    #[test]
    fn nothing_uses_more_processors_than_it_can() {
        let most = |kind, without_cgroups, processors| {
            let runtime = Runtime {
                name: "x".into(),
                kind,
                without_cgroups,
            };
            most_cpus(&runtime, 1.5, processors)
        };
        assert_eq!(most(Kind::Gvisor, false, 2), Some(1.5));
        assert_eq!(most(Kind::Gvisor, false, 1), Some(1.0));
        assert_eq!(most(Kind::Gvisor, true, 2), Some(2.0));
        assert_eq!(most(Kind::Gvisor, true, 0), None);
        assert_eq!(most(Kind::Plain, false, 2), None);
    }

    #[test]
    fn limits_that_nothing_enforces_are_watched() {
        let limits = WatchedLimits {
            held: false,
            ..LIMITS
        };
        let within = Usage {
            memory_bytes: 1000,
            processes: 10 + OWN_PROCESSES,
            ..Usage::default()
        };
        assert_eq!(limits.exceeded(within, Mark::default()), None);
        let large = Usage {
            memory_bytes: 1001,
            ..within
        };
        assert!(matches!(
            limits.exceeded(large, Mark::default()),
            Some(KillReason::Memory { .. })
        ));
        let many = Usage {
            processes: 11 + OWN_PROCESSES,
            ..within
        };
        assert!(matches!(
            limits.exceeded(many, Mark::default()),
            Some(KillReason::Processes { .. })
        ));
    }
}
