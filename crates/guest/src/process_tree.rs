//! Which process belongs to which execution, in a container where all share one PID namespace. A
//! keeper adopts the orphans of its program, so every process of an execution is a descendant of its
//! keeper. When the keeper is gone, they become children of the guest, which has no other children
//! but keepers.

use std::collections::HashMap;

use brig_linux::process_stat::{ProcessStat, process_ids};
use rustix::process::{Pid, Signal};

/// Every process but the guest.
pub(crate) fn processes() -> HashMap<u32, ProcessStat> {
    process_ids()
        .filter(|pid| *pid != 1)
        .filter_map(|pid| Some((pid, ProcessStat::of(pid).ok()?)))
        .collect()
}

/// A look at every process but the guest, a few at a time. In a storm of processes each look takes long, and what
/// the owner sends must not wait for the last one.
#[derive(Debug)]
pub(crate) struct ProcessWalk {
    left: Vec<u32>,
    found: HashMap<u32, ProcessStat>,
}

/// How many processes are looked at in one step.
const STEP: usize = 4;

impl ProcessWalk {
    pub(crate) fn new() -> Self {
        Self {
            left: process_ids().filter(|pid| *pid != 1).collect(),
            found: HashMap::new(),
        }
    }

    /// Goes on. Everything that was found, at the end.
    pub(crate) fn step(mut self) -> Result<HashMap<u32, ProcessStat>, Self> {
        for pid in self.left.split_off(self.left.len().saturating_sub(STEP)) {
            if let Ok(stat) = ProcessStat::of(pid) {
                self.found.insert(pid, stat);
            }
        }
        if self.left.is_empty() {
            Ok(self.found)
        } else {
            Err(self)
        }
    }
}

/// Processes that are descendants of none of these keepers.
pub(crate) fn below_none_of(keepers: &[u32]) -> Vec<u32> {
    let processes = processes();
    let belongs = |pid: u32| {
        let mut at = pid;
        // A longer chain has changed while it was read. The next round will see it.
        for _ in 0..=processes.len() {
            if keepers.contains(&at) {
                return true;
            }
            match processes.get(&at).map(|stat| stat.parent) {
                Some(1) | None => return false,
                Some(parent) => at = parent,
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
pub(crate) fn program_of(keeper: u32) -> Option<u32> {
    let processes = processes();
    let children = processes.iter().filter(|(_, stat)| stat.parent == keeper);
    let first = children.min_by_key(|(_, stat)| stat.start_time);
    first.map(|(pid, _)| *pid)
}

pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}
