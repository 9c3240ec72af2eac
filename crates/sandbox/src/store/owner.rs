//! Who has a session open, so that another process can end it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use brig_linux::process_stat::ProcessStat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::atomic::{read_json, write_note};

const FILE: &str = "owner.json";
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub pid: u32,
    /// In the clock ticks of the kernel: a number that is used again has another start.
    pub start: u64,
}

impl Process {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start: start_time(pid)?,
        })
    }

    /// Ends it, if it is still the same, and waits until it is gone.
    fn kill(self) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        // Looked up after the handle was opened, so handle and start belong together.
        if start_time(self.pid) != Some(self.start) {
            return Ok(());
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Ok(()) => {}
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&wait)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The contents of `owner.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnerFile {
    pub owner: Process,
    pub instance: Option<Process>,
    /// The kernel and the PID namespace in which these ids mean something. Nothing if `/proc` did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

impl OwnerFile {
    pub(super) fn write(directory: &Path, instance: Option<u32>) -> io::Result<()> {
        let owner = Process::of(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
        let instance = instance.and_then(Process::of);
        let file = OwnerFile {
            owner,
            instance,
            namespace: own_namespace(),
        };
        write_note(&directory.join(FILE), &file)
    }

    pub(super) fn read(directory: &Path) -> Option<Self> {
        read_json(&directory.join(FILE)).ok()
    }

    /// Whether its process ids mean nothing here: a container shares the state directory with its host.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.namespace.is_some() && self.namespace != own_namespace()
    }

    pub(super) fn kill_instance(directory: &Path) -> io::Result<()> {
        let owner = Self::read(directory).filter(|owner| !owner.is_elsewhere());
        match owner.and_then(|owner| owner.instance) {
            Some(instance) => instance.kill(),
            None => Ok(()),
        }
    }
}

fn own_namespace() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    Some(format!("{}/{namespace}", boot.trim()))
}

fn start_time(pid: u32) -> Option<u64> {
    Some(ProcessStat::of(pid).ok()?.start_time)
}
