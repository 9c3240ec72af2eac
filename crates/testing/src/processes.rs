//! Processes of this machine.

use brig_linux::process_stat::{ProcessStat, process_ids};

/// All processes below this one.
pub fn descendants() -> Vec<u32> {
    let mut parents = Vec::new();
    for pid in process_ids() {
        let stat = ProcessStat::of(pid);
        parents.extend(stat.map(|stat| (pid, stat.parent)));
    }
    let mut found = vec![std::process::id()];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        let below = parents.iter().filter(|(_, parent)| *parent == above);
        found.extend(below.map(|(pid, _)| pid));
        next += 1;
    }
    found.split_off(1)
}
