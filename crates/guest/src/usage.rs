//! What a container uses, as far as it can be seen from inside: the files of its control group, or
//! else what the kernel counts, if that is the container's own, or else the sum over its processes.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use brig_wire::Usage;

/// How often it is looked at while something runs.
const LOOK: Duration = Duration::from_millis(25);

#[derive(Debug)]
pub struct Meter {
    own_kernel: bool,
    /// Children of the guest that had ended at the last look.
    pub orphans: Vec<u32>,
    last: Usage,
    due: Option<Instant>,
    peak: u64,
}

impl Meter {
    pub fn new(own_kernel: bool) -> Self {
        Self {
            own_kernel,
            orphans: Vec::new(),
            last: Usage::default(),
            due: None,
            peak: 0,
        }
    }

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
        let mut usage = of_group().unwrap_or_else(|| self.of_processes());
        self.peak = self.peak.max(usage.memory_bytes).max(usage.peak_bytes);
        usage.peak_bytes = self.peak;
        (usage != std::mem::replace(&mut self.last, usage)).then_some(usage)
    }

    fn of_processes(&mut self) -> Usage {
        let processes = processes();
        let orphans = processes
            .iter()
            .filter(|(_, one)| one.ended && one.parent == 1);
        self.orphans = orphans.map(|(pid, _)| *pid).collect();
        let counted = self.own_kernel.then(of_kernel).flatten();
        Usage {
            memory_bytes: counted.unwrap_or_else(|| resident(&processes)),
            processes: tasks(&processes),
            ..Usage::default()
        }
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

/// All that is written and no file's: of processes, of memory files and segments, of every tmpfs.
fn of_kernel() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("AnonPages:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn resident(processes: &HashMap<u32, Process>) -> u64 {
    let pages = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    processes.keys().filter_map(pages).sum::<u64>() * rustix::param::page_size() as u64
}

/// Threads, as a control group counts them; but not what has ended and is about to be reaped by
/// the guest or by a keeper, which is a child of the guest.
fn tasks(processes: &HashMap<u32, Process>) -> u32 {
    let ours = |pid: u32| pid == 1 || processes.get(&pid).is_some_and(|above| above.parent == 1);
    let counted = processes
        .values()
        .filter(|one| !(one.ended && ours(one.parent)));
    counted.fold(0, |sum, one| sum.saturating_add(one.threads.max(1)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    ended: bool,
    threads: u32,
}

impl Process {
    fn parse(stat: &str) -> Option<Self> {
        // The name before it may hold anything.
        let (_, after) = stat.rsplit_once(')')?;
        let words: Vec<&str> = after.split_ascii_whitespace().collect();
        Some(Self {
            ended: matches!(*words.first()?, "Z" | "X"),
            parent: words.get(1)?.parse().ok()?,
            threads: words.get(17)?.parse().ok()?,
        })
    }
}

/// Every process but the guest.
fn processes() -> HashMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != 1)
        .filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, Process::parse(&stat)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, state: &str, threads: u32) -> Process {
        let stat =
            format!("7 (a ) name) {state} {parent} 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 1");
        Process::parse(&stat).expect("a process")
    }

    #[test]
    fn threads_count_and_what_is_about_to_be_reaped_does_not() {
        let mut all = HashMap::from([(2, process(1, "S", 1)), (3, process(2, "R", 5))]);
        assert_eq!(tasks(&all), 6);
        // An orphan that has ended, which the keeper reaps; and one whose parent does not care.
        all.insert(4, process(2, "Z", 1));
        assert_eq!(tasks(&all), 6);
        all.insert(5, process(3, "Z", 0));
        assert_eq!(tasks(&all), 7);
    }
}
