//! What there is now that a sandbox could have left behind.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brig_testing::descendants;

/// How long the kernel may take to finish what was ended.
const SETTLE: Duration = Duration::from_secs(20);

/// Whose leavings are looked for: other users of Brig may be at work on this machine.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Processes that made sandboxes, dead or alive.
    owners: RefCell<BTreeSet<u32>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Census {
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    processes: BTreeSet<String>,
    folders: BTreeSet<String>,
    /// Of this process.
    descriptors: usize,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let owners = RefCell::new(BTreeSet::from([std::process::id()]));
        Self { owners }
    }

    pub(crate) fn add(&self, owner: u32) {
        self.owners.borrow_mut().insert(owner);
    }

    pub(crate) fn take(&self) -> Census {
        let processes = descendants();
        Census {
            mounts: lines("/proc/self/mountinfo"),
            cgroups: cgroups(&self.owners.borrow()),
            namespaces: namespaces(&processes),
            processes: processes.iter().map(|pid| describe(*pid)).collect(),
            folders: folders(),
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        }
    }

    /// Waits until there is nothing that was not there before; says what still is.
    pub(crate) fn settles(&self, before: &Census) -> Result<(), String> {
        let began = Instant::now();
        loop {
            reap();
            let more = self.take().beyond(before);
            if more.is_empty() {
                return Ok(());
            }
            if began.elapsed() > SETTLE {
                return Err(format!("left behind: {}", more.join("; ")));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl Census {
    fn beyond(&self, before: &Self) -> Vec<String> {
        let sets = [
            ("mount", &self.mounts, &before.mounts),
            ("cgroup", &self.cgroups, &before.cgroups),
            ("namespace", &self.namespaces, &before.namespaces),
            ("process", &self.processes, &before.processes),
            ("folder", &self.folders, &before.folders),
        ];
        let mut more = Vec::new();
        for (kind, now, before) in sets {
            let new: Vec<_> = now.difference(before).collect();
            if let Some(first) = new.first() {
                more.push(format!("{} × {kind}, such as {first}", new.len()));
            }
        }
        if self.descriptors > before.descriptors {
            more.push(format!(
                "descriptors: {} after {}",
                self.descriptors, before.descriptors
            ));
        }
        more
    }
}

/// Waits for orphans that came to this process. The library waits for its own children itself, so
/// only what is already dead is taken, and only when nothing of the library is running.
fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
}

fn lines(path: &str) -> BTreeSet<String> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .map(String::from)
        .collect()
}

/// Groups of these owners, in every hierarchy: a group's name holds its owner's process id.
fn cgroups(owners: &BTreeSet<u32>) -> BTreeSet<String> {
    let ours = |name: &str| {
        let owner = name
            .strip_prefix("brig-")
            .and_then(|rest| rest.split('-').next());
        owner
            .and_then(|pid| pid.parse().ok())
            .is_some_and(|pid: u32| owners.contains(&pid))
    };
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if ours(&entry.file_name().to_string_lossy()) {
                found.insert(entry.path().display().to_string());
            }
            open.push(entry.path());
        }
    }
    found
}

/// Of this process and all below it, and those that an open descriptor of it keeps alive.
fn namespaces(processes: &[u32]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let own = std::process::id();
    for pid in processes.iter().chain([&own]) {
        for entry in fs::read_dir(format!("/proc/{pid}/ns"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Ok(target) = fs::read_link(entry.path()) {
                found.insert(target.display().to_string());
            }
        }
    }
    for entry in fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Ok(target) = fs::read_link(entry.path())
            && target.to_string_lossy().contains(":[")
            && !["socket:", "pipe:", "anon_inode:"]
                .iter()
                .any(|other| target.to_string_lossy().starts_with(other))
        {
            found.insert(target.display().to_string());
        }
    }
    found
}

/// All of the temporary directory, which is this run's own, and what carries the project's name in
/// places of the system.
fn folders() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for place in ["/dev/shm", "/run"] {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains("brig") {
                found.insert(entry.path().display().to_string());
            }
        }
    }
    let mut open = vec![std::env::temp_dir()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            found.insert(entry.path().display().to_string());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

fn describe(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} {}", name.trim())
}
