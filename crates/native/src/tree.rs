//! Measures a process tree, where no control group does it.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use brig_linux::process_stat::{ProcessStat, read_proc_text};

/// A process, and one of its threads that still has its memory. Not always the first one: when the main thread
/// has exited, the kernel reports no memory for it, but other threads may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pid: u32,
    thread: u32,
    /// A thread of the parent process.
    parent: Option<u32>,
    resident: u64,
    page_tables: u64,
}

/// A process with smaller page tables than this is not asked for their size.
const SMALL_TABLES: u64 = 8 << 20;
/// The address space that a page of page tables can describe, in pages.
const PER_TABLE: u64 = 512;

/// The processes below `root`, and `root` itself.
pub(crate) fn members(root: u32) -> Vec<Member> {
    let (mut found, mut members) = (vec![(root, None)], Vec::new());
    while let Some((pid, parent)) = found.get(members.len()).copied() {
        let (resident, page_tables) = memory_of(pid).unwrap_or_default();
        let mut member = Member {
            pid,
            thread: pid,
            parent,
            resident,
            page_tables,
        };
        let mut children = Vec::new();
        for thread in threads(pid) {
            let file = format!("/proc/{pid}/task/{thread}/children");
            let text = fs::read_to_string(file).unwrap_or_default();
            let numbers = text.split_whitespace();
            children.extend(numbers.filter_map(|pid| pid.parse::<u32>().ok()));
            if member.resident == 0 {
                member.thread = thread;
                (member.resident, member.page_tables) = memory_of(thread).unwrap_or_default();
            }
        }
        let parent = Some(member.thread);
        found.extend(children.into_iter().map(|child| (child, parent)));
        members.push(member);
    }
    members
}

fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let names = threads.into_iter().flatten().flatten();
    names.filter_map(|thread| thread.file_name().to_str()?.parse().ok())
}

/// Whether this kernel has /proc/PID/task/TID/children.
pub(crate) fn can_be_measured() -> bool {
    fs::read_to_string("/proc/thread-self/children").is_ok()
}

/// Resident memory and page tables, roughly: shared pages are counted for each process.
pub(crate) fn resident(members: &[Member]) -> u64 {
    let all = |member: &Member| member.resident + member.page_tables;
    members.iter().map(all).sum()
}

/// Resident memory and page tables. A process that only reads memory that it has never written has no resident memory,
/// but page tables for it.
fn memory_of(thread: u32) -> Option<(u64, u64)> {
    let statm = fs::read_to_string(format!("/proc/{thread}/statm")).ok()?;
    let mut words = statm.split_whitespace().map(str::parse::<u64>);
    let (size, resident) = (words.next()?.ok()?, words.next()?.ok()?);
    let page = rustix::param::page_size() as u64;
    let tables = match size / PER_TABLE * page {
        ..=SMALL_TABLES => 0,
        _ => fields(&format!("/proc/{thread}/status"), &["VmPTE:"]).unwrap_or(0),
    };
    Some((resident * page, tables))
}

/// What a glance misses is in this: pages in swap, and memory that is shared without a file, of
/// which a process can fill far more than it has in use at any time. The latter is counted as
/// large as it was asked for; what lies in files is left to [`used_bytes`].
pub(crate) fn claimed(members: &[Member]) -> u64 {
    let own = |member: &Member| {
        let file = format!("/proc/{}/status", member.thread);
        let pages = fields(&file, &["RssAnon:", "RssFile:", "VmSwap:"]);
        pages.unwrap_or(0) + member.page_tables
    };
    members.iter().map(own).sum::<u64>() + shared(members)
}

/// The same with pages that several processes share divided among them. This takes time.
pub(crate) fn exact(members: &[Member]) -> u64 {
    let own = |member: &Member| {
        let file = format!("/proc/{}/smaps_rollup", member.thread);
        let pages = fields(&file, &["Pss_Anon:", "Pss_File:", "SwapPss:"]);
        match pages.or_else(|| memory_of(member.thread).map(|(resident, _)| resident)) {
            Some(pages) => pages + member.page_tables,
            // It has ended since it was seen, and has no memory any more.
            None => 0,
        }
    };
    // A child of `vfork` shares the memory of its parent until it executes another program.
    let borrows = |member: &Member| {
        let parent = member.parent;
        parent.is_some_and(|parent| brig_linux::process::share_memory(parent, member.thread))
    };
    let counted = members.iter().copied().filter(|member| !borrows(member));
    let counted: Vec<Member> = counted.collect();
    counted.iter().map(own).sum::<u64>() + shared(&counted)
}

/// Sums up fields in KiB of a file of the kernel's; none if it can't be read. Names in it may be any bytes.
fn fields(file: &str, names: &[&str]) -> Option<u64> {
    let text = read_proc_text(file).ok()?;
    let values = text.lines().filter_map(|line| {
        let value = names.iter().find_map(|name| line.strip_prefix(name))?;
        value.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    Some(values.sum::<u64>() * 1024)
}

/// The sizes of mappings that are shared without a file, each counted once.
fn shared(members: &[Member]) -> u64 {
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for member in members {
        let maps = format!("/proc/{}/maps", member.thread);
        let maps = read_proc_text(maps).unwrap_or_default();
        for line in maps
            .lines()
            .filter(|line| line.ends_with("/dev/zero (deleted)"))
        {
            if let Some((inode, end)) = mapping(line) {
                let size = sizes.entry(inode).or_default();
                *size = end.max(*size);
            }
        }
    }
    sizes.values().sum()
}

/// The inode that a line of `maps` shows, and how far into it the mapping reaches.
fn mapping(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = number(words.nth(1)?)?;
    let length = number(to)?.checked_sub(number(from)?)?;
    Some((words.nth(1)?.to_owned(), offset + length))
}

/// CPU time of processes. What a process uses between the last sample and its end is missed.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes {
    /// By process id and start time, because ids are reused.
    living: HashMap<(u32, u64), u64>,
    /// Of ended processes.
    gone: u64,
}

impl CpuTimes {
    pub(crate) fn sample(&mut self, members: &[Member]) {
        let seen = members.iter().filter_map(|member| {
            let stat = ProcessStat::of(member.pid).ok()?;
            Some(((member.pid, stat.start_time), stat.cpu_ticks))
        });
        let before = std::mem::replace(&mut self.living, seen.collect());
        for (process, ticks) in before {
            if !self.living.contains_key(&process) {
                self.gone += ticks;
            }
        }
    }

    pub(crate) fn total(&self) -> Duration {
        let ticks = self.gone + self.living.values().sum::<u64>();
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_micros(ticks.saturating_mul(1_000_000) / per_second)
    }
}

/// Bytes in use on the file system behind a descriptor.
pub(crate) fn used_bytes(directory: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(directory).map_or(0, |stat| {
        stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_since_it_was_seen_has_no_memory() {
        let member = |pid| Member {
            pid,
            thread: pid,
            parent: None,
            resident: 1 << 40,
            page_tables: 0,
        };
        let mut child = std::process::Command::new("true").spawn().expect("true");
        child.wait().expect("ended");
        assert_eq!(exact(&[member(child.id())]), 0);
        assert_ne!(exact(&[member(std::process::id())]), 0, "control");
    }

    #[test]
    fn times_add_up_when_processes_go_and_numbers_are_given_again() {
        let mut times = CpuTimes::default();
        times.living.insert((7, 1), 30);
        times.gone = 12;
        times.sample(&[]);
        assert_eq!((times.gone, times.living.len()), (42, 0));
        let own = members(std::process::id());
        times.sample(&own[..1]);
        assert!(times.total() >= Duration::from_millis(420));
    }

    #[test]
    fn a_copy_of_memory_is_memory_of_its_own() {
        use brig_linux::process::share_memory;
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep");
        let own = std::process::id();
        // `spawn` can return before the child has its new memory.
        let program = |of: u32| std::fs::read_link(format!("/proc/{of}/exe"));
        while program(child.id()).ok() == program(own).ok() {
            std::thread::yield_now();
        }
        let (same, other) = (share_memory(own, own), share_memory(own, child.id()));
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(same, "control");
        assert!(!other);
    }

    #[test]
    fn mappings_are_read_from_their_lines() {
        let line = "7f0000000000-7f0000100000 rw-s 00200000 00:01 4711    /dev/zero (deleted)";
        assert_eq!(mapping(line), Some(("4711".into(), 0x30_0000)));
    }
}
