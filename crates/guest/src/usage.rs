//! What a container uses, as far as it can be seen from inside: the files of its control group, or
//! else the sum over its processes.

use std::fs;
use std::time::{Duration, Instant};

use brig_wire::Usage;

/// How often it is looked at while something runs.
const LOOK: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub struct Meter {
    last: Usage,
    due: Option<Instant>,
    peak: u64,
}

impl Meter {
    /// How long until the next look.
    pub fn patience(&self) -> Duration {
        self.due.map_or(Duration::ZERO, |due| {
            due.saturating_duration_since(Instant::now())
        })
    }

    /// If it is time to look.
    pub fn glance(&mut self) -> Option<Usage> {
        if self.patience().is_zero() {
            self.look()
        } else {
            None
        }
    }

    /// What has changed since the last look, if anything has.
    pub fn look(&mut self) -> Option<Usage> {
        self.due = Some(Instant::now() + LOOK);
        let mut usage = of_group().unwrap_or_else(of_processes);
        self.peak = self.peak.max(usage.memory_bytes).max(usage.peak_bytes);
        usage.peak_bytes = self.peak;
        (usage != std::mem::replace(&mut self.last, usage)).then_some(usage)
    }
}

/// Version 2 of control groups, or version 1.
fn of_group() -> Option<Usage> {
    let (memory, pids, kills, current, peak) = match fs::exists("/sys/fs/cgroup/memory.current") {
        Ok(true) => (
            "/sys/fs/cgroup",
            "/sys/fs/cgroup",
            "memory.events",
            "memory.current",
            "memory.peak",
        ),
        _ => (
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/pids",
            "memory.oom_control",
            "memory.usage_in_bytes",
            "memory.max_usage_in_bytes",
        ),
    };
    Some(Usage {
        memory_kills: counter(&format!("{memory}/{kills}"), "oom_kill")?,
        refused: counter(&format!("{pids}/pids.events"), "max")?,
        memory_bytes: number(&format!("{memory}/{current}"))?,
        peak_bytes: number(&format!("{memory}/{peak}")).unwrap_or(0),
        processes: u32::try_from(number(&format!("{pids}/pids.current"))?).ok()?,
    })
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value behind a name.
fn counter(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

fn of_processes() -> Usage {
    let page = rustix::param::page_size() as u64;
    let processes = crate::trees::processes();
    let resident = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Usage {
        memory_bytes: processes.keys().filter_map(resident).sum::<u64>() * page,
        processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
        ..Usage::default()
    }
}
