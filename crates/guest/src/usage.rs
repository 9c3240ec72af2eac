//! What a container uses, measured from inside: by its control group; without one by the counters of
//! the kernel, if that is the container's own; otherwise by the sum over its processes.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use brig_linux::process_stat::ProcessStat;
use brig_wire::Usage;

use crate::process_tree::{ProcessWalk, processes};

/// The time between samples while something runs.
const INTERVAL: Duration = Duration::from_millis(25);

/// How often usage is told that does not change.
const UNCHANGED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Meter {
    own_kernel: bool,
    own_group: bool,
    cpu: SampledCpu,
    /// Ended children of the guest at the last sample.
    pub orphans: Vec<u32>,
    last: Usage,
    due: Option<Instant>,
    /// A sample that is not complete, and when it was begun.
    walk: Option<(Instant, ProcessWalk)>,
    told: Option<Instant>,
    peak: u64,
}

impl Meter {
    pub(crate) fn new(own_kernel: bool, own_group: bool) -> Self {
        Self {
            own_kernel,
            own_group,
            cpu: SampledCpu::default(),
            orphans: Vec::new(),
            last: Usage::default(),
            due: None,
            walk: None,
            told: None,
            peak: 0,
        }
    }

    /// The time until the next sample or report.
    pub(crate) fn until_due(&self) -> Duration {
        if self.walk.is_some() {
            return Duration::ZERO;
        }
        let report = self.told.map(|told| told + UNCHANGED);
        let next = [self.due, report].into_iter().flatten().min();
        next.map_or(Duration::ZERO, until)
    }

    /// The next part of a sample, if it is time for one. What was measured before, if it takes long: there may be
    /// many processes, and the owner takes silence for a broken limit.
    pub(crate) fn sample_if_due(&mut self) -> Option<Usage> {
        self.step_if_due().or_else(|| {
            let late = self.told.is_some_and(|told| told.elapsed() >= UNCHANGED);
            late.then(|| {
                self.told = Some(Instant::now());
                self.last
            })
        })
    }

    fn step_if_due(&mut self) -> Option<Usage> {
        if self.walk.is_none() && self.due.is_some_and(|due| !until(due).is_zero()) {
            return None;
        }
        let now = Instant::now();
        if self.walk.is_none()
            && let Some(usage) = self.own_group.then(of_group).flatten()
        {
            return self.sampled(now, usage);
        }
        let (begun, walk) = self
            .walk
            .take()
            .unwrap_or_else(|| (now, ProcessWalk::new()));
        match walk.step() {
            Ok(processes) => {
                let usage = self.of_processes(&processes);
                self.sampled(begun, usage)
            }
            Err(walk) => {
                self.walk = Some((begun, walk));
                None
            }
        }
    }

    /// The usage now, if it has changed since the last sample or was not told for a while: the owner takes
    /// silence for a broken limit.
    pub(crate) fn sample(&mut self) -> Option<Usage> {
        let begun = Instant::now();
        self.walk = None;
        let group = self.own_group.then(of_group).flatten();
        let usage = group.unwrap_or_else(|| self.of_processes(&processes()));
        self.sampled(begun, usage)
    }

    fn sampled(&mut self, begun: Instant, mut usage: Usage) -> Option<Usage> {
        // Looking at many processes takes long, and must leave time for ending them.
        self.due = Some(Instant::now() + INTERVAL.max(begun.elapsed() * 4));
        self.peak = self.peak.max(usage.memory_bytes).max(usage.peak_bytes);
        usage.peak_bytes = self.peak;
        let changed = usage != std::mem::replace(&mut self.last, usage);
        if !changed && self.told.is_some_and(|told| told.elapsed() < UNCHANGED) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(usage)
    }

    /// CPU time of the container so far, by its control group or as sampled. Unlike `wait4`, this includes
    /// processes that nobody waited for, and those that were killed.
    pub(crate) fn cpu_microseconds(&mut self) -> u64 {
        let group = self.own_group.then(group_cpu_microseconds).flatten();
        group.unwrap_or_else(|| {
            self.cpu.add(&processes());
            self.cpu.microseconds()
        })
    }

    fn of_processes(&mut self, processes: &HashMap<u32, ProcessStat>) -> Usage {
        let orphans = processes
            .iter()
            .filter(|(_, stat)| stat.has_ended() && stat.parent == 1);
        self.orphans = orphans.map(|(pid, _)| *pid).collect();
        self.cpu.add(processes);
        let counted = self.own_kernel.then(of_kernel).flatten();
        Usage {
            memory_bytes: counted.unwrap_or_else(|| resident(processes)),
            processes: tasks(processes),
            ..Usage::default()
        }
    }
}

fn until(when: Instant) -> Duration {
    when.saturating_duration_since(Instant::now())
}

/// The CPU time of processes, added up from samples.
#[derive(Debug, Default)]
struct SampledCpu {
    ticks: u64,
    /// By id and start time, because ids are reused.
    last: HashMap<(u32, u64), u64>,
}

impl SampledCpu {
    fn add(&mut self, processes: &HashMap<u32, ProcessStat>) {
        let before = std::mem::take(&mut self.last);
        for (pid, stat) in processes {
            let process = (*pid, stat.start_time);
            let known = before.get(&process).copied().unwrap_or(0);
            self.ticks += stat.cpu_ticks.saturating_sub(known);
            self.last.insert(process, stat.cpu_ticks.max(known));
        }
    }

    fn microseconds(&self) -> u64 {
        self.ticks.saturating_mul(1_000_000) / rustix::param::clock_ticks_per_second().max(1)
    }
}

/// Control groups version 2, or version 1.
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

/// CPU time of the container, as its control group counts it.
fn group_cpu_microseconds() -> Option<u64> {
    let nanoseconds = || number("/sys/fs/cgroup/cpuacct/cpuacct.usage");
    counter("/sys/fs/cgroup/cpu.stat", "usage_usec").or_else(|| Some(nanoseconds()? / 1000))
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value of one line in a file with lines of name and value.
fn counter(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Anonymous memory. In gVisor that includes memory files, shared memory segments and every tmpfs.
fn of_kernel() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("AnonPages:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn resident(processes: &HashMap<u32, ProcessStat>) -> u64 {
    let pages = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    processes.keys().filter_map(pages).sum::<u64>() * rustix::param::page_size() as u64
}

/// Threads, which is what a control group counts. Without zombies whose parent is the guest or a
/// keeper, because those are about to be reaped.
fn tasks(processes: &HashMap<u32, ProcessStat>) -> u32 {
    let ours = |pid: u32| pid == 1 || processes.get(&pid).is_some_and(|stat| stat.parent == 1);
    let counted = processes
        .values()
        .filter(|stat| !(stat.has_ended() && ours(stat.parent)));
    counted.fold(0, |sum, stat| sum.saturating_add(stat.threads.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, state: &str, threads: u32) -> ProcessStat {
        let stat =
            format!("7 (a ) name) {state} {parent} 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 1");
        ProcessStat::parse(stat.as_bytes()).expect("a process")
    }

    #[test]
    fn usage_is_told_while_a_sample_takes_long() {
        let mut meter = Meter::new(false, false);
        let first = meter.sample().expect("the first is told");
        let long_ago = Instant::now().checked_sub(2 * UNCHANGED);
        // The next sample is far away, as after one that took long.
        meter.due = Some(Instant::now() + Duration::from_secs(600));
        assert!(meter.until_due() <= UNCHANGED, "control: it was just told");
        meter.told = long_ago;
        assert_eq!(meter.until_due(), Duration::ZERO);
        assert_eq!(meter.sample_if_due(), Some(first));
        assert_eq!(meter.sample_if_due(), None);
    }

    #[test]
    fn cpu_time_of_ended_processes_stays_counted() {
        let used = |ticks: u64, start_time| ProcessStat {
            cpu_ticks: ticks,
            start_time,
            ..process(1, "R", 1)
        };
        let mut cpu = SampledCpu::default();
        cpu.add(&HashMap::from([(2, used(10, 1)), (3, used(5, 1))]));
        cpu.add(&HashMap::from([(2, used(30, 1))]));
        assert_eq!(cpu.ticks, 35);
        // Another process with the id of an ended one.
        cpu.add(&HashMap::from([(2, used(7, 9))]));
        assert_eq!(cpu.ticks, 42);
        cpu.add(&HashMap::new());
        assert_eq!(cpu.ticks, 42);
    }

    #[test]
    fn threads_count_and_what_is_about_to_be_reaped_does_not() {
        let mut all = HashMap::from([(2, process(1, "S", 1)), (3, process(2, "R", 5))]);
        assert_eq!(tasks(&all), 6);
        // A zombie of a keeper, and one of a program that does not reap it.
        all.insert(4, process(2, "Z", 1));
        assert_eq!(tasks(&all), 6);
        all.insert(5, process(3, "Z", 0));
        assert_eq!(tasks(&all), 7);
    }
}
