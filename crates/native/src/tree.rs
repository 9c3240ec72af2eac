//! Measuring a process tree from outside, where no control group does it.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;

/// The processes below `root`, and `root` itself.
pub fn members(root: u32) -> Vec<u32> {
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

/// Whether this kernel tells of a process's children at all.
pub fn can_be_measured() -> bool {
    fs::read_to_string("/proc/thread-self/children").is_ok()
}

/// Pages in use, by a glance: those that several processes share are counted for each.
pub fn resident(members: &[u32]) -> u64 {
    members.iter().map(|pid| resident_of(*pid)).sum()
}

fn resident_of(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    let pages: Option<u64> = pages.and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// What a glance misses is in this: pages in swap, and memory that is shared without a file, of
/// which a process can fill far more than it has in use at any time. The latter is counted as
/// large as it was asked for; what lies in files is left to [`used_bytes`].
pub fn claimed(members: &[u32]) -> u64 {
    let own = |pid: &u32| {
        let file = format!("/proc/{pid}/status");
        fields(&file, &["RssAnon:", "RssFile:", "VmSwap:"]).unwrap_or(0)
    };
    members.iter().map(own).sum::<u64>() + shared(members)
}

/// The same with pages that several processes share divided among them. This takes time.
pub fn exact(members: &[u32]) -> u64 {
    let own = |pid: &u32| {
        let file = format!("/proc/{pid}/smaps_rollup");
        fields(&file, &["Pss_Anon:", "Pss_File:", "SwapPss:"]).unwrap_or_else(|| resident_of(*pid))
    };
    members.iter().map(own).sum::<u64>() + shared(members)
}

/// Sums up fields in KiB of a file of the kernel's; none if it can't be read.
fn fields(file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let values = text.lines().filter_map(|line| {
        let value = names.iter().find_map(|name| line.strip_prefix(name))?;
        value.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    Some(values.sum::<u64>() * 1024)
}

/// The sizes of mappings that are shared without a file, each counted once.
fn shared(members: &[u32]) -> u64 {
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for pid in members {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
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

/// Bytes in use on the file system behind a descriptor.
pub fn used_bytes(place: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(place).map_or(0, |stat| {
        stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_from_their_lines() {
        let line = "7f0000000000-7f0000100000 rw-s 00200000 00:01 4711    /dev/zero (deleted)";
        assert_eq!(mapping(line), Some(("4711".into(), 0x30_0000)));
    }
}
