//! Control groups: found once, made per instance, removed with it.

mod v1;
mod v2;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brig_sandbox::{Error, Result};
use rustix::io::Errno;

/// Names start with this, the owner's process id and its start time, so that what a dead owner
/// left behind can be told from what a living one uses.
const PREFIX: &str = "brig-";

/// Where this process may make control groups.
#[derive(Clone, Debug)]
pub enum Cgroups {
    None,
    /// Version 1: one tree per controller.
    V1(v1::Trees),
    /// Version 2: the folder that instances are made below.
    V2(PathBuf),
    /// Version 2 through the user's service manager.
    Systemd,
}

impl Cgroups {
    pub fn find() -> Self {
        let Ok(mounts) = read("/proc/self/mountinfo") else {
            return Self::None;
        };
        let Ok(own) = read("/proc/self/cgroup") else {
            return Self::None;
        };
        if let Some(found) = v2::find(&mounts, &own) {
            return found;
        }
        match v1::find(&mounts, &own) {
            Some(trees) => Self::V1(trees),
            None => Self::None,
        }
    }

    pub fn memory(&self) -> bool {
        match self {
            Self::None => false,
            Self::V1(trees) => trees.memory.is_some(),
            Self::V2(_) | Self::Systemd => true,
        }
    }

    pub fn pids(&self) -> bool {
        match self {
            Self::None => false,
            Self::V1(trees) => trees.pids.is_some(),
            Self::V2(_) | Self::Systemd => true,
        }
    }

    pub fn cpu(&self) -> bool {
        match self {
            Self::None => false,
            Self::V1(trees) => trees.cpu.is_some(),
            Self::V2(_) | Self::Systemd => true,
        }
    }

    pub fn version(&self) -> &'static str {
        match self {
            Self::None => "no cgroup",
            Self::V1(_) => "cgroup v1",
            Self::V2(_) => "cgroup v2",
            Self::Systemd => "cgroup v2 (scope of the user's systemd)",
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::None => "none that you may use".into(),
            Self::V1(trees) => format!("version 1: {}", trees.names().join(", ")),
            Self::V2(base) => format!("version 2 below {}", base.display()),
            Self::Systemd => "version 2, a scope of the user's systemd per sandbox".into(),
        }
    }

    fn bases(&self) -> Vec<&Path> {
        match self {
            Self::None | Self::Systemd => Vec::new(),
            Self::V1(trees) => trees.all(),
            Self::V2(base) => vec![base],
        }
    }

    /// Removes the groups of owners that are gone.
    pub fn sweep(&self) -> Swept {
        let (mut removed, mut busy) = (BTreeSet::new(), BTreeSet::new());
        for base in self.bases() {
            for entry in fs::read_dir(base).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !name.starts_with(PREFIX) || owner_lives(&name) {
                    continue;
                }
                match remove(&entry.path()) {
                    Ok(()) => removed.insert(name),
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => busy.insert(name),
                    // Somebody else's.
                    Err(_) => false,
                };
            }
        }
        Swept {
            removed: removed.len(),
            busy: busy.len(),
        }
    }
}

/// What became of the groups of dead owners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    pub removed: usize,
    /// Still with processes that are about to end: their guest has seen its owner go.
    pub busy: usize,
}

/// Whether the process in a group's name still runs. A number that was given to another process
/// since has another start time.
fn owner_lives(name: &str) -> bool {
    let mut parts = name.trim_start_matches(PREFIX).split('-');
    let (Some(pid), Some(started)) = (parts.next(), parts.next()) else {
        return true;
    };
    let Ok(pid) = pid.parse() else { return true };
    start_time(pid).is_some_and(|now| now.to_string() == started)
}

/// When a process was started, in ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets that may hold anything.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let started = start_time(pid).unwrap_or(0);
    format!(
        "{PREFIX}{pid}-{started}-{}",
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn read_number(path: &Path) -> Option<u64> {
    read(path).ok()?.trim().parse().ok()
}

/// Reads a file of the kernel's making. They have no size, so a plain read would begin with pieces
/// of 32 bytes.
fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(16 * 1024);
    io::Read::read_to_string(&mut fs::File::open(path)?, &mut text)?;
    Ok(text)
}

/// The value after `key` in a file of `key value` lines.
fn read_field(path: &Path, key: &str) -> Option<u64> {
    let text = read(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

/// What a group's limits are.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    memory: u64,
    processes: u32,
    cpus: f64,
}

/// The control group of one instance.
#[derive(Debug)]
pub struct Group {
    folders: Vec<PathBuf>,
    /// A version 2 group, to be started in.
    start_in: Option<OwnedFd>,
    /// Of version 1 groups, to be entered by the process itself.
    tasks: Vec<OwnedFd>,
    files: Files,
    numbers: Numbers,
    name: String,
}

/// Where a group's counters are read.
#[derive(Clone, Debug, Default)]
struct Files {
    oom: PathBuf,
    peak: PathBuf,
    current: PathBuf,
    /// Only where the buffers of TCP are counted apart.
    tcp: Option<PathBuf>,
    pids_events: PathBuf,
}

impl Group {
    pub fn create(cgroups: &Cgroups, memory: u64, processes: u32, cpus: f64) -> Result<Self> {
        let numbers = Numbers {
            memory,
            processes,
            cpus,
        };
        let name = new_name();
        let made = match cgroups {
            Cgroups::None => Err(io::Error::from(io::ErrorKind::Unsupported)),
            Cgroups::V1(trees) => v1::create(trees, name, numbers),
            Cgroups::V2(base) => v2::create(base, name, numbers),
            Cgroups::Systemd => Ok(Self {
                folders: Vec::new(),
                start_in: None,
                tasks: Vec::new(),
                files: Files::default(),
                numbers,
                name,
            }),
        };
        made.map_err(|error| Error::Setup {
            step: "make a control group".into(),
            problem: error.to_string(),
        })
    }

    pub fn start_in(&self) -> Option<BorrowedFd<'_>> {
        self.start_in.as_ref().map(AsFd::as_fd)
    }

    pub fn tasks(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tasks.iter().map(AsFd::as_fd)
    }

    /// Puts a process under the limits, where it neither starts under them nor enters by itself.
    pub async fn attach(&mut self, pid: u32) -> io::Result<()> {
        // The process has its own copies by now.
        self.tasks.clear();
        self.start_in = None;
        if self.folders.is_empty() {
            let (folder, files) = v2::scope(&self.name, pid, self.numbers).await?;
            self.folders.push(folder);
            self.files = files;
        }
        Ok(())
    }

    /// How often the kernel has killed here for want of memory.
    pub fn oom_kills(&self) -> u64 {
        read_field(&self.files.oom, "oom_kill ").unwrap_or(0)
    }

    pub fn peak_memory(&self) -> Option<u64> {
        read_number(&self.files.peak).or_else(|| read_number(&self.files.current))
    }

    /// Counts the peak anew. Only version 1 can, for everybody who asks.
    pub fn forget_peak(&self) -> bool {
        self.files.peak.ends_with(v1::PEAK) && std::fs::write(&self.files.peak, "0").is_ok()
    }

    /// What the buffers of TCP take, where nothing else counts them.
    pub fn tcp_memory(&self) -> u64 {
        self.files.tcp.as_deref().and_then(read_number).unwrap_or(0)
    }

    /// How often a new process was refused.
    pub fn refused_processes(&self) -> u64 {
        read_field(&self.files.pids_events, "max ").unwrap_or(0)
    }

    /// Removes the group once its processes are gone.
    pub fn remove(&self) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| remove(folder))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Usually gone already, or free in a moment. What still has a process in it is swept later.
        for _ in 0..50 {
            match self.remove() {
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => break,
            }
        }
    }
}
