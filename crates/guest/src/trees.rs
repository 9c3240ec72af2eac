//! Which process belongs to which execution, where all share one namespace. A keeper adopts the
//! orphans of its program, so everything that an execution started is below its keeper; and when
//! the keeper is gone, what is left becomes a child of the guest, which has no children but
//! keepers.

use std::collections::HashMap;

use rustix::process::{Pid, Signal};

/// Every process but the guest, and its parent.
pub fn processes() -> HashMap<u32, u32> {
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    folder
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != 1)
        .filter_map(|pid: u32| Some((pid, parent(pid)?)))
        .collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Those that are below no keeper.
pub fn strays(keepers: &[u32]) -> Vec<u32> {
    let processes = processes();
    let belongs = |pid: u32| {
        let mut at = pid;
        // A chain that is longer has changed while it was looked at.
        for _ in 0..=processes.len() {
            if keepers.contains(&at) {
                return true;
            }
            match processes.get(&at) {
                Some(1) | None => return false,
                Some(above) => at = *above,
            }
        }
        true
    };
    processes
        .keys()
        .copied()
        .filter(|pid| !belongs(*pid))
        .collect()
}

/// The program that a keeper started: its first child.
pub fn program_of(keeper: u32) -> Option<u32> {
    let processes = processes();
    let children = processes.iter().filter(|(_, above)| **above == keeper);
    children.map(|(pid, _)| *pid).min_by_key(|pid| begun(*pid))
}

/// When a process began, in ticks since the machine did.
fn begun(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_ascii_whitespace().nth(19);
    ticks.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

pub fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}
