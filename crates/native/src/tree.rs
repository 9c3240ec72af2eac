//! Measuring a process tree from outside, where no control group does it.

use std::fs;
use std::os::fd::OwnedFd;

/// What a tree uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub memory: u64,
    pub processes: u32,
}

/// Sums up the processes below `root`. Resident sizes count shared pages once for each process, so
/// only when their sum exceeds `limit` the exact shares are asked for, which cost more.
pub fn measure(root: u32, limit: u64) -> Sum {
    let page = rustix::param::page_size() as u64;
    let members = members(root);
    let resident = |pid: &u32| -> u64 {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        statm
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
            * page
    };
    let mut memory: u64 = members.iter().map(resident).sum();
    if memory > limit {
        memory = members
            .iter()
            .map(|pid| share(*pid).unwrap_or_else(|| resident(pid)))
            .sum();
    }
    // The guest and its keepers are not the program's.
    Sum {
        memory,
        processes: (members.len() as u32).saturating_sub(2),
    }
}

/// A process's share of the pages it uses.
fn share(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

fn members(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let pid = found[next];
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// Bytes in use on the file system behind a descriptor.
pub fn used_bytes(place: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(place).map_or(0, |stat| {
        stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize
    })
}
