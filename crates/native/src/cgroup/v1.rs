//! Version 1: every controller has a tree of its own.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::{Files, Group, Numbers};

pub(super) const PEAK: &str = "memory.max_usage_in_bytes";
pub(super) const CPU: &str = "cpuacct.usage";

/// The folder of each controller's tree that this process is in, if it may make groups there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trees {
    pub memory: Option<PathBuf>,
    pub pids: Option<PathBuf>,
    pub cpu: Option<PathBuf>,
    /// Only counts. Often the same tree as the one before.
    pub cpuacct: Option<PathBuf>,
}

const PERIOD_US: u64 = 100_000;

impl Trees {
    pub(crate) fn names(&self) -> Vec<&'static str> {
        [
            ("memory", &self.memory),
            ("pids", &self.pids),
            ("cpu", &self.cpu),
        ]
        .into_iter()
        .filter_map(|(name, tree)| tree.is_some().then_some(name))
        .collect()
    }

    pub(crate) fn all(&self) -> Vec<&Path> {
        [&self.memory, &self.pids, &self.cpu, &self.cpuacct]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect()
    }
}

pub(super) fn find(mounts: &str, own: &str) -> Option<Trees> {
    let tree = |controller: &str| {
        let (mount, root) = mounts.lines().find_map(|line| mount_of(line, controller))?;
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let names = parts.nth(1)?;
            names
                .split(',')
                .any(|name| name == controller)
                .then(|| parts.next())?
        })?;
        // In a container the mount shows only a part of the tree.
        let inside = path
            .strip_prefix(root.trim_end_matches('/'))
            .unwrap_or(path);
        let folder = Path::new(mount).join(inside.trim_start_matches('/'));
        writable(&folder).then_some(folder)
    };
    let trees = Trees {
        memory: tree("memory"),
        pids: tree("pids"),
        cpu: tree("cpu"),
        cpuacct: tree("cpuacct"),
    };
    (!trees.names().is_empty()).then_some(trees)
}

/// Mount point and root of a line of mountinfo, if it is the controller's.
fn mount_of<'a>(line: &'a str, controller: &str) -> Option<(&'a str, &'a str)> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1)?;
    if kind != "cgroup" || !options.split(',').any(|option| option == controller) {
        return None;
    }
    let mut left = left.split(' ').skip(3);
    let root = left.next()?;
    Some((left.next()?, root))
}

pub(super) fn writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
        && rustix::fs::statvfs(folder)
            .is_ok_and(|stat| !stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

pub(super) fn create(trees: &Trees, name: String, numbers: Numbers) -> io::Result<Group> {
    // Owned from the first folder on, so that a failure in the middle leaves nothing.
    let mut group = Group {
        folders: Vec::new(),
        start_in: None,
        tasks: Vec::new(),
        files: Files::default(),
        numbers,
        name,
        removed: AtomicBool::new(false),
    };
    if let Some(tree) = &trees.memory {
        let folder = make(&mut group, tree)?;
        fs::write(
            folder.join("memory.limit_in_bytes"),
            numbers.memory.to_string(),
        )?;
        let swap = folder.join("memory.memsw.limit_in_bytes");
        if swap.exists() {
            fs::write(swap, numbers.memory.to_string())?;
        }
        // Their limit is only a brake: every socket may have a little beyond it. So it is watched.
        let tcp = folder.join("memory.kmem.tcp.limit_in_bytes");
        if tcp.exists() {
            fs::write(tcp, numbers.memory.to_string())?;
            group.files.tcp = Some(folder.join("memory.kmem.tcp.usage_in_bytes"));
        }
        group.files.oom = folder.join("memory.oom_control");
        group.files.peak = folder.join(PEAK);
    }
    if let Some(tree) = &trees.pids {
        let folder = make(&mut group, tree)?;
        fs::write(folder.join("pids.max"), numbers.processes.to_string())?;
        group.files.pids_events = folder.join("pids.events");
    }
    if let Some(tree) = &trees.cpu {
        let folder = make(&mut group, tree)?;
        fs::write(folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
        let quota = numbers.cpu_quota(PERIOD_US);
        fs::write(folder.join("cpu.cfs_quota_us"), quota.to_string())?;
        group.files.cpu = folder.join(CPU);
    }
    if let Some(tree) = &trees.cpuacct
        && !group.files.cpu.exists()
    {
        let folder = make(&mut group, tree)?;
        group.files.cpu = folder.join(CPU);
    }
    Ok(group)
}

fn make(group: &mut Group, tree: &Path) -> io::Result<PathBuf> {
    let folder = tree.join(&group.name);
    fs::create_dir(&folder)?;
    group.folders.push(folder.clone());
    let tasks = OpenOptions::new().write(true).open(folder.join("tasks"))?;
    group.tasks.push(tasks.into());
    Ok(folder)
}
