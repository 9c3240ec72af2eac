//! Watching over one instance from outside: limits, the end of it, its files.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use brig_linux::clone::{Child, Gate};
use brig_sandbox::link::{Guard, Mark};
use brig_sandbox::{Attempts, Error, KillReason, Plan, Result};
use rustix::io::Errno;

use crate::cgroup::Group;
use crate::gate::{CommandGate, Judge};
use crate::limits::Means;
use crate::{handoff, tree};

/// How often counters are looked at while something runs.
const LOOK: Duration = Duration::from_millis(25);

/// Every so many looks, at what a glance misses.
const THOROUGH: u64 = 4;

/// A program that is refused this many processes is a bomb.
const BOMB: u64 = 1000;

/// Or one that stays at the limit for this many looks.
const CROWDED_LOOKS: u32 = 40;

/// Dropped without having been released, the process ends first, so that its group is free to go.
#[derive(Debug)]
pub struct NativeGuard {
    process: Child,
    group: Option<Group>,
    /// Until the guest is ready.
    starting: Mutex<Option<Starting>>,
    /// The writable file system and the private workspace, once handed out.
    places: Mutex<Option<Places>>,
    /// Sockets of its network, until they are served.
    doors: Mutex<Vec<OwnedFd>>,
    /// Where commands are watched, if they are.
    gate: Mutex<Option<CommandGate>>,
    memory_limit: u64,
    process_limit: u32,
    cgroup_memory: bool,
    cgroup_pids: bool,
    /// Whether the workspace is a folder of the host, which saves itself.
    host_workspace: bool,
    overlay: bool,
    disk_limit: u64,
    peak: AtomicU64,
    /// Whether an execution was counted already.
    counted: AtomicBool,
    /// Held while the workspace is mirrored.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Whether everything is freed. Held while that is being done, which may be given up and taken
    /// up again.
    released: tokio::sync::Mutex<bool>,
}

/// What only the start of a guest needs.
#[derive(Debug)]
pub struct Starting {
    pub gate: Gate,
    /// Where the guest hands descriptors out.
    pub handoff: OwnedFd,
    /// Decides on commands, if there is something to decide.
    pub judge: Option<Judge>,
}

#[derive(Debug)]
struct Places {
    disk: OwnedFd,
    workspace: OwnedFd,
}

impl NativeGuard {
    pub fn new(
        process: Child,
        group: Option<Group>,
        starting: Starting,
        means: &Means,
        plan: &Plan,
        overlay_layers: bool,
    ) -> Self {
        Self {
            process,
            group,
            starting: Mutex::new(Some(starting)),
            places: Mutex::new(None),
            doors: Mutex::default(),
            gate: Mutex::new(None),
            memory_limit: plan.limits().memory_bytes.value,
            process_limit: plan.limits().processes.value,
            cgroup_memory: means.cgroup_memory,
            cgroup_pids: means.cgroup_pids,
            host_workspace: plan.workspace().is_some(),
            overlay: overlay_layers && !plan.layers().is_empty(),
            disk_limit: plan.limits().disk_bytes.value,
            peak: AtomicU64::new(0),
            counted: AtomicBool::new(false),
            saving: Arc::default(),
            released: tokio::sync::Mutex::new(false),
        }
    }

    /// The sockets that the guest has opened for its network.
    pub fn take_doors(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut lock(&self.doors))
    }

    fn places(&self) -> MutexGuard<'_, Option<Places>> {
        lock(&self.places)
    }

    fn memory_reason(&self) -> KillReason {
        KillReason::Memory {
            limit_bytes: self.memory_limit,
            peak_bytes: self.peak_memory().unwrap_or(0),
        }
    }

    /// One look at the tree where no control group holds the limit: bytes, as far as nobody else
    /// counts them, and processes.
    async fn look_at_tree(&self, thorough: bool) -> (u64, u32) {
        let members = tree::members(self.process.pid());
        // The guest and its keeper are not the program's.
        let processes = (members.len() as u32).saturating_sub(2);
        if self.cgroup_memory {
            return (0, processes);
        }
        let files = self
            .places()
            .as_ref()
            .map_or(0, |places| tree::used_bytes(&places.disk));
        let mut memory = files + tree::resident(&members);
        if thorough {
            memory = memory.max(files + tree::claimed(&members));
        }
        if memory > self.memory_limit {
            // Timers must not wait for what the kernel takes to count.
            let exact = tokio::task::spawn_blocking(move || tree::exact(&members)).await;
            memory = exact.map_or(memory, |exact| files + exact);
        }
        self.peak.fetch_max(memory, Ordering::Relaxed);
        (memory, processes)
    }
}

#[async_trait]
impl Guard for NativeGuard {
    fn ready(&self) -> Result<()> {
        let Some(Starting { handoff, judge, .. }) = lock(&self.starting).take() else {
            return Ok(());
        };
        let (mut places, mut doors) = (Vec::new(), Vec::new());
        // Each kind once; whatever else a guest sends is left unread.
        for _ in 0..2 {
            let Some((what, descriptors)) = handoff::take(&handoff)? else {
                break;
            };
            match what {
                b'd' => places = descriptors,
                b'n' => doors = descriptors,
                _ => {
                    return Err(Error::Protocol(
                        "the guest handed out something else".into(),
                    ));
                }
            }
        }
        let mut places = places.into_iter();
        let (Some(disk), Some(workspace)) = (places.next(), places.next()) else {
            return Err(Error::Protocol("the guest handed out too little".into()));
        };
        *lock(&self.doors) = doors;
        *self.places() = Some(Places { disk, workspace });
        if let Some(judge) = judge {
            let gate = CommandGate::open(handoff, judge);
            let gate = gate.map_err(|error| Error::io("watch over commands", error))?;
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
        let (mut looks, mut crowded) = (0u64, 0);
        loop {
            tokio::time::sleep(LOOK).await;
            looks += 1;
            let now = self.mark();
            if now.memory_kills > since.memory_kills {
                return self.memory_reason();
            }
            let tcp = self.group.as_ref().map_or(0, Group::tcp_memory);
            if tcp > self.memory_limit {
                return KillReason::Memory {
                    limit_bytes: self.memory_limit,
                    peak_bytes: tcp,
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
            let (memory, processes) = self.look_at_tree(looks % THOROUGH == 0).await;
            if memory > self.memory_limit {
                return self.memory_reason();
            }
            crowded = if processes >= self.process_limit {
                crowded + 1
            } else {
                0
            };
            if !self.cgroup_pids && crowded >= CROWDED_LOOKS {
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

    async fn save(&self, into: &Path) -> Result<()> {
        if self.host_workspace {
            return Ok(());
        }
        let workspace = match &*self.places() {
            Some(places) => places
                .workspace
                .try_clone()
                .map_err(|error| Error::io("save the workspace", error))?,
            None => {
                return Err(Error::InstanceLost(
                    "its workspace was never handed out".into(),
                ));
            }
        };
        let (into, overlay, limit) = (into.to_owned(), self.overlay, self.disk_limit);
        // Held to the end, also when the caller stops waiting.
        let alone = Arc::clone(&self.saving).lock_owned().await;
        let mirror = move || {
            let _alone = alone;
            brig_sandbox::layers::mirror(workspace.as_fd(), &into, overlay, limit).map(drop)
        };
        // Timers of others must not wait for the disk.
        tokio::task::spawn_blocking(mirror)
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
        // The end of the guest is the end of everything in its namespace.
        let ended = self.process.reap().await;
        ended.map_err(|error| Error::io("wait for the end of the sandbox", error))?;
        // They hold the writable file system, and with it the memory that it takes; and nobody
        // writes to the host's folders any more.
        let _quiet = self.saving.lock().await;
        self.places().take();
        if let Some(group) = &self.group {
            remove_group(group).await?;
        }
        *released = true;
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel lets go of a group a moment after its last process.
async fn remove_group(group: &Group) -> Result<()> {
    for _ in 0..200 {
        match group.remove() {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => return Err(Error::io("remove the control group", error)),
        }
    }
    Err(Error::io(
        "remove the control group",
        std::io::Error::from(Errno::BUSY),
    ))
}
