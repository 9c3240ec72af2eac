//! Watches one instance: its limits, its end, its files.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use brig_guest_host::link::{Guard, Mark, Written};
use brig_layers::{Accesses, Unchanged, mirror_seen};
use brig_linux::access::AccessTimes;
use brig_linux::clone::Child;
use brig_linux::gate::Gate;
use brig_sandbox::{Attempts, Error, KillReason, Plan, Result};
use brig_wire::{KernelIdentity, Writers};

use crate::cgroup::{GROUP_PATIENCE, Group, is_busy};
use crate::gate::{CommandDecider, CommandGate};
use crate::host::Host;
use crate::identity::Identity;
use crate::limits::LimitMechanisms;
use crate::network::Sockets;
use crate::sink::Sink;
use crate::{handoff, tree, unaccepted};

/// The time between two samples while something runs.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);

/// The least time between two samples, where memory is watched and little of it is left.
const LEAST_INTERVAL: Duration = Duration::from_millis(2);

/// After a sample that took long the next one waits so many times as long, but no longer than usual.
const SAMPLING_SHARE: u32 = 4;

/// How fast one CPU fills memory, at most: the kernel has to clear every page first.
const FILLED_PER_MILLISECOND: u64 = 4 << 20;

/// Every so many samples, a more expensive one.
const THOROUGH: u64 = 4;

/// A program with this many failed forks is a fork bomb.
const BOMB: u64 = 1000;

/// So is one that is at the limit of processes in every sample of this time.
const FULL_TIME: Duration = Duration::from_secs(1);

/// If it is dropped without having been released, the process is killed first, so that its group can be
/// removed.
#[derive(Debug)]
pub(crate) struct NativeGuard {
    process: Child,
    group: Option<Group>,
    /// Until the guest is ready.
    starting: Mutex<Option<Starting>>,
    /// What the guest has handed out to be measured and saved.
    directories: Mutex<Option<GuestDirectories>>,
    /// Sockets of its network, before they are served.
    sockets: Mutex<Sockets>,
    /// Reads packets to addresses outside.
    sink: OnceLock<Sink>,
    /// Only where commands are watched.
    gate: Mutex<Option<CommandGate>>,
    memory_limit: u64,
    /// How many CPUs its processes can use at once.
    cpus: u32,
    process_limit: u32,
    cgroup_memory: bool,
    cgroup_pids: bool,
    /// Whether the workspace is a host directory, which need not be saved.
    host_workspace: bool,
    overlay: bool,
    disk_limit: u64,
    peak: AtomicU64,
    /// CPU time of processes, without a control group.
    cpu: Mutex<tree::CpuTimes>,
    /// Whether an execution was counted already.
    counted: AtomicBool,
    /// Whether programs can't access files unseen: the filter refuses `O_NOATIME`.
    filtered: bool,
    /// Locked while the workspace is mirrored. Nothing before the first time.
    saving: Arc<tokio::sync::Mutex<Option<Accesses>>>,
    /// Whether everything is freed. Locked meanwhile: a caller may give up, and another one continue.
    released: tokio::sync::Mutex<bool>,
    /// Reserves its id until it is gone.
    identity: Identity,
}

/// What is only needed until the guest is ready.
#[derive(Debug)]
pub(crate) struct Starting {
    pub gate: Gate,
    /// Where the guest hands out descriptors.
    pub handoff: OwnedFd,
    /// Only if the policy has command lists.
    pub decider: Option<CommandDecider>,
}

#[derive(Debug)]
struct GuestDirectories {
    /// The writable file system.
    disk: OwnedFd,
    workspace: OwnedFd,
}

impl NativeGuard {
    pub(crate) fn new(
        process: Child,
        group: Option<Group>,
        starting: Starting,
        mechanisms: &LimitMechanisms,
        plan: &Plan,
        host: &Host,
        identity: Identity,
    ) -> Self {
        Self {
            process,
            group,
            starting: Mutex::new(Some(starting)),
            directories: Mutex::new(None),
            sockets: Mutex::default(),
            sink: OnceLock::new(),
            gate: Mutex::new(None),
            memory_limit: plan.limits().memory_bytes.value,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a positive number of CPUs"
            )]
            cpus: plan.limits().cpus.value.ceil() as u32,
            process_limit: plan.limits().processes.value,
            cgroup_memory: mechanisms.cgroup_memory,
            cgroup_pids: mechanisms.cgroup_pids,
            host_workspace: plan.workspace().is_some(),
            overlay: host.overlay_layers && !plan.initial().directories().is_empty(),
            filtered: host.seccomp,
            disk_limit: plan.limits().disk_bytes.value,
            peak: AtomicU64::new(0),
            cpu: Mutex::default(),
            counted: AtomicBool::new(false),
            saving: Arc::default(),
            released: tokio::sync::Mutex::new(false),
            identity,
        }
    }

    /// The sockets that the guest has opened for its network.
    pub(crate) fn take_sockets(&self) -> Sockets {
        std::mem::take(&mut lock(&self.sockets))
    }

    /// To be called once.
    pub(crate) fn watch_packets(&self, sink: Sink) {
        let _ = self.sink.set(sink);
    }

    fn directories(&self) -> MutexGuard<'_, Option<GuestDirectories>> {
        lock(&self.directories)
    }

    fn memory_reason(&self) -> KillReason {
        KillReason::Memory {
            limit_bytes: self.memory_limit,
            peak_bytes: self.peak_memory().unwrap_or(0),
        }
    }

    /// Bytes of connections that nobody has accepted, which no control group counts.
    async fn unaccepted(&self) -> u64 {
        let pid = self.process.pid();
        if !unaccepted::may_be_much(pid) {
            return 0;
        }
        // Listing them may take long; timers must not wait for it.
        let counted = tokio::task::spawn_blocking(move || unaccepted::bytes(pid)).await;
        counted.unwrap_or(0)
    }

    /// Memory and number of processes, where no control group enforces the limit.
    async fn sample_tree(&self, thorough: bool) -> (u64, u32) {
        let members = tree::members(self.process.pid());
        // Without the guest, which is the first one.
        lock(&self.cpu).sample(members.get(1..).unwrap_or_default());
        // Without the guest and the keeper.
        let processes = u32::try_from(members.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(2);
        if self.cgroup_memory {
            return (0, processes);
        }
        let files = self
            .directories()
            .as_ref()
            .map_or(0, |directories| tree::used_bytes(&directories.disk));
        let mut memory = files + tree::resident(&members);
        if thorough {
            memory = memory.max(files + tree::claimed(&members));
        }
        if memory > self.memory_limit {
            // In a thread: counting takes the kernel long, and timers must not wait.
            let exact = tokio::task::spawn_blocking(move || tree::exact(&members)).await;
            memory = exact.map_or(memory, |exact| files + exact);
        }
        self.peak.fetch_max(memory, Ordering::Relaxed);
        (memory, processes)
    }
}

#[async_trait]
impl Guard for NativeGuard {
    fn ready(&self, _kernel: Option<&KernelIdentity>) -> Result<()> {
        let Some(Starting {
            handoff, decider, ..
        }) = lock(&self.starting).take()
        else {
            return Ok(());
        };
        let (mut directories, mut sockets) = (Vec::new(), Sockets::default());
        // Each kind once. Whatever else a guest sends is not read.
        for _ in 0..4 {
            let Some((what, descriptors)) = handoff::take(&handoff)? else {
                break;
            };
            match what {
                b'd' => directories = descriptors,
                b'n' => sockets.listeners = descriptors,
                b'f' => sockets.free = descriptors,
                b's' => sockets.sink = descriptors,
                _ => {
                    return Err(Error::Protocol(
                        "the guest passed an unexpected descriptor".into(),
                    ));
                }
            }
        }
        let mut directories = directories.into_iter();
        let (Some(disk), Some(workspace)) = (directories.next(), directories.next()) else {
            return Err(Error::Protocol(
                "the guest passed too few descriptors".into(),
            ));
        };
        *lock(&self.sockets) = sockets;
        *self.directories() = Some(GuestDirectories { disk, workspace });
        if let Some(decider) = decider {
            let gate = CommandGate::open(handoff, decider);
            let gate = gate.map_err(|error| Error::io("watch commands", error))?;
            *lock(&self.gate) = Some(gate);
        }
        Ok(())
    }

    fn begins(&self, id: u32, attempts: &Arc<Attempts>) {
        if let Some(gate) = &*lock(&self.gate) {
            gate.begins(id, attempts);
        }
    }

    fn ends(&self, id: u32) {
        if let Some(gate) = &*lock(&self.gate) {
            gate.ends(id);
        }
        // Its last packets may not be read yet.
        if let Some(sink) = self.sink.get() {
            sink.drain();
        }
    }

    fn start_failure(&self) -> Option<Error> {
        let (step, error) = lock(&self.starting).as_ref()?.gate.failure()?;
        Some(Error::Setup {
            step: step.into(),
            problem: error.to_string(),
        })
    }

    fn mark(&self) -> Mark {
        let group = self.group.as_ref();
        let counts =
            |counted: bool, count: fn(&Group) -> u64| group.filter(|_| counted).map_or(0, count);
        Mark {
            memory_kills: counts(self.cgroup_memory, Group::oom_kills),
            refused: counts(self.cgroup_pids, Group::refused_processes),
        }
    }

    async fn breach(&self, since: Mark) -> KillReason {
        let (mut samples, mut full) = (0u64, Duration::ZERO);
        let mut interval = SAMPLE_INTERVAL;
        loop {
            let slept = interval;
            tokio::time::sleep(slept).await;
            let started = Instant::now();
            samples += 1;
            let now = self.mark();
            if now.memory_kills > since.memory_kills {
                return self.memory_reason();
            }
            let counted = self.group.as_ref().map_or(0, Group::tcp_memory);
            let sink = self.sink.get();
            let neighbours = sink.map_or(0, |sink| sink.neighbour_bytes(self.memory_limit));
            let network = counted + self.unaccepted().await + neighbours;
            if network > self.memory_limit {
                return KillReason::Memory {
                    limit_bytes: self.memory_limit,
                    peak_bytes: network,
                };
            }
            if now.refused.saturating_sub(since.refused) > BOMB {
                return KillReason::Processes {
                    limit: self.process_limit,
                };
            }
            if self.cgroup_memory && self.cgroup_pids {
                continue;
            }
            let (memory, processes) = self.sample_tree(samples % THOROUGH == 0).await;
            if memory > self.memory_limit {
                return self.memory_reason();
            }
            if !self.cgroup_memory {
                let left = self.memory_limit - memory;
                let rest = (started.elapsed() * SAMPLING_SHARE).min(SAMPLE_INTERVAL);
                interval = until_filled(left, self.cpus).max(rest);
            }
            full = if processes >= self.process_limit {
                full + slept
            } else {
                Duration::ZERO
            };
            if !self.cgroup_pids && full >= FULL_TIME {
                return KillReason::Processes {
                    limit: self.process_limit,
                };
            }
        }
    }

    fn verdict(&self, since: Mark) -> Option<KillReason> {
        (self.mark().memory_kills > since.memory_kills).then(|| self.memory_reason())
    }

    fn peak_memory(&self) -> Option<u64> {
        match self.group.as_ref().filter(|_| self.cgroup_memory) {
            Some(group) => group.peak_memory(),
            None => Some(self.peak.load(Ordering::Relaxed)),
        }
    }

    fn cpu_time(&self) -> Option<Duration> {
        match self.group.as_ref().and_then(Group::cpu_time) {
            Some(exact) => Some(exact),
            None => Some(lock(&self.cpu).total()),
        }
    }

    fn forget_peak(&self) -> bool {
        self.peak.store(0, Ordering::Relaxed);
        let untouched = !self.counted.swap(true, Ordering::Relaxed);
        match self.group.as_ref().filter(|_| self.cgroup_memory) {
            Some(group) => untouched || group.forget_peak(),
            None => true,
        }
    }

    fn largest_file(&self) -> u64 {
        if self.host_workspace {
            u64::MAX
        } else {
            self.disk_limit
        }
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.process.pid())
    }

    async fn save(&self, into: &Path, written: Written) -> Result<()> {
        if self.host_workspace {
            return Ok(());
        }
        let workspace = match &*self.directories() {
            Some(directories) => directories
                .workspace
                .try_clone()
                .map_err(|error| Error::io("save the workspace", error))?,
            None => {
                return Err(Error::InstanceLost(
                    "the guest never passed its workspace".into(),
                ));
            }
        };
        let (into, overlay, limit) = (into.to_owned(), self.overlay, self.disk_limit);
        let owner = self.identity.saved;
        // An overlay has times of access of its own.
        let tells = self.filtered && !overlay;
        // Locked to the end, even if the caller stops waiting.
        let mut seen = Arc::clone(&self.saving).lock_owned().await;
        let save = move || {
            let times = || match tells {
                true => AccessTimes::of(&workspace).unwrap_or_default(),
                false => AccessTimes::Unknown,
            };
            let seen = seen.get_or_insert_with(|| Accesses::new(times()));
            let unchanged = match written.by {
                Writers::None => Unchanged::Time,
                Writers::Later => Unchanged::Access(written.from),
                Writers::Any => Unchanged::Content,
            };
            mirror_seen(
                workspace.as_fd(),
                &into,
                overlay,
                limit,
                unchanged,
                owner,
                seen,
            )
            .map(drop)
        };
        // In a thread, so that other tasks don't wait for the disk.
        tokio::task::spawn_blocking(save)
            .await
            .unwrap_or_else(|stopped| Err(std::io::Error::other(stopped)))
            .map_err(|error| Error::io("save the workspace", error))
    }

    fn kill(&self) {
        self.process.kill();
    }

    async fn release(&self) -> Result<()> {
        let mut released = self.released.lock().await;
        if *released {
            return Ok(());
        }
        // When the guest has ended, everything in its PID namespace has.
        let ended = self.process.reap().await;
        ended.map_err(|error| Error::io("wait for the end of the sandbox", error))?;
        // After a save that still runs. The descriptors keep the tmpfs and its memory alive.
        let _no_save = self.saving.lock().await;
        self.directories().take();
        if let Some(group) = &self.group {
            remove_group(group).await?;
        }
        *released = true;
        Ok(())
    }
}

/// How long so many bytes last, within the bounds of an interval.
fn until_filled(left: u64, cpus: u32) -> Duration {
    let per_millisecond = FILLED_PER_MILLISECOND.saturating_mul(u64::from(cpus.max(1)));
    Duration::from_millis(left / per_millisecond).clamp(LEAST_INTERVAL, SAMPLE_INTERVAL)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group is busy until shortly after its last process has ended, which a busy machine makes longer.
async fn remove_group(group: &Group) -> Result<()> {
    let end = Instant::now() + GROUP_PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        match group.remove() {
            Ok(()) => return Ok(()),
            Err(error) if is_busy(&error) && Instant::now() < end => {
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(Duration::from_millis(50));
            }
            Err(error) => return Err(Error::io("remove the control group", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_sooner_is_the_next_sample() {
        assert_eq!(until_filled(1 << 40, 1), SAMPLE_INTERVAL);
        assert_eq!(until_filled(40 << 20, 1), Duration::from_millis(10));
        assert_eq!(until_filled(40 << 20, 2), Duration::from_millis(5));
        assert_eq!(until_filled(0, 1), LEAST_INTERVAL);
    }
}
