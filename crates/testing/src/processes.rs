//! Processes of this machine.

use std::fs;

/// All processes below this one.
pub fn descendants() -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
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
