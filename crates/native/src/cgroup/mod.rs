//! Control groups: detected once, created per instance, removed with it.

mod v1;
mod v2;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use brig_linux::process_stat::ProcessStat;
use brig_sandbox::{Error, Result};
use rustix::io::Errno;

/// Names start with this, the owner's process id, its start time and its PID namespace, so that groups of
/// dead owners can be recognised.
const PREFIX: &str = "brig-";

/// Where this process may create control groups.
#[derive(Clone, Debug)]
pub(crate) enum Cgroups {
    None,
    /// Version 1: one tree per controller.
    V1(v1::Trees),
    /// Version 2: the directory for the groups of instances.
    V2(PathBuf),
    /// Version 2 through the user's service manager.
    Systemd,
}

impl Cgroups {
    pub(crate) fn find() -> Self {
        let Ok(mounts) = brig_linux::mountinfo::read("/proc/self/mountinfo") else {
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

    pub(crate) fn memory(&self) -> bool {
        match self {
            Self::None => false,
            Self::V1(trees) => trees.memory.is_some(),
            Self::V2(_) | Self::Systemd => true,
        }
    }

    pub(crate) fn pids(&self) -> bool {
        match self {
            Self::None => false,
            Self::V1(trees) => trees.pids.is_some(),
            Self::V2(_) | Self::Systemd => true,
        }
    }

    pub(crate) fn cpu(&self) -> bool {
        match self {
            Self::None => false,
            Self::V1(trees) => trees.cpu.is_some(),
            Self::V2(_) | Self::Systemd => true,
        }
    }

    pub(crate) fn version(&self) -> &'static str {
        match self {
            Self::None => "no cgroup",
            Self::V1(_) => "cgroup v1",
            Self::V2(_) => "cgroup v2",
            Self::Systemd => "cgroup v2 (scope of the user's systemd)",
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::None => "none that this user may use".into(),
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
    pub(crate) fn sweep(&self) -> Swept {
        if let Self::Systemd = self {
            return sweep_scopes();
        }
        let (mut removed, mut busy) = (BTreeSet::new(), BTreeSet::new());
        let mut owners = Owners::default();
        for base in self.bases() {
            for name in owners.dead(base) {
                match remove(&base.join(&name)) {
                    Ok(()) => removed.insert(name),
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => busy.insert(name),
                    // Of another user.
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

/// Which owners live, each looked up once: an owner has a group in every tree for each of its sandboxes.
#[derive(Debug, Default)]
struct Owners {
    known: HashMap<String, bool>,
}

impl Owners {
    /// Names of groups in a directory whose owner is gone.
    fn dead(&mut self, base: &Path) -> Vec<String> {
        let entries = fs::read_dir(base).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with(PREFIX) && !self.lives(name))
            .collect()
    }

    fn lives(&mut self, name: &str) -> bool {
        // All but the number of the group.
        let parts: Vec<&str> = name.splitn(5, '-').take(4).collect();
        let lives = || owner_lives(name);
        *self.known.entry(parts.join("-")).or_insert_with(lives)
    }
}

/// The manager removes a scope whose last process ends, but not one that never had a process, such as that of
/// an owner that was killed while it asked for one.
fn sweep_scopes() -> Swept {
    let scopes = v2::scopes()
        .map(|base| Owners::default().dead(&base))
        .unwrap_or_default();
    let stopped = scopes.iter().filter(|unit| v2::stop_scope(unit).is_ok());
    Swept {
        removed: stopped.count(),
        busy: 0,
    }
}

/// The result of removing the groups of dead owners.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Swept {
    pub removed: usize,
    /// Groups whose processes are about to end, because their owner is gone.
    pub busy: usize,
}

/// Whether the process in a group's name may still run. If its id was reused, the start time differs. The
/// ids of another PID namespace can't be looked up here, and with a container that shares the control
/// groups such an owner may well run.
fn owner_lives(name: &str) -> bool {
    let mut parts = name.trim_start_matches(PREFIX).split('-');
    let (Some(pid), Some(started), Some(namespace)) = (parts.next(), parts.next(), parts.next())
    else {
        return true;
    };
    let Ok(pid) = pid.parse() else { return true };
    namespace != pid_namespace() || start_time(pid).is_some_and(|now| now.to_string() == started)
}

/// The number of this process's PID namespace, such as 4026531836.
fn pid_namespace() -> &'static str {
    static NUMBER: OnceLock<String> = OnceLock::new();
    NUMBER.get_or_init(|| {
        let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let digits = |c: &char| c.is_ascii_digit();
        link.to_string_lossy().chars().filter(digits).collect()
    })
}

/// When a process was started, in ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    Some(ProcessStat::of(pid).ok()?.start_time)
}

fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let started = start_time(pid).unwrap_or(0);
    format!(
        "{PREFIX}{pid}-{started}-{}-{}",
        pid_namespace(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// How long a group may stay busy after its last process has ended.
pub(crate) const GROUP_PATIENCE: Duration = Duration::from_secs(10);

/// Whether a group is not let go of yet.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
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

/// Reads a kernel file with one read. Such files report no size, so `std::fs::read` would start with 32 bytes.
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

impl Numbers {
    /// CPU time in each period.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of CPUs, rounded down"
    )]
    fn cpu_quota(&self, period: u64) -> u64 {
        (self.cpus * period as f64) as u64
    }
}

/// The control group of one instance.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    /// A version 2 group, to be started in.
    start_in: Option<OwnedFd>,
    /// Of version 1 groups, to be entered by the process itself.
    tasks: Vec<OwnedFd>,
    files: Files,
    numbers: Numbers,
    name: String,
    removed: AtomicBool,
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
    /// CPU time, in nanoseconds, or in microseconds after a key.
    cpu: PathBuf,
}

impl Group {
    pub(crate) fn create(
        cgroups: &Cgroups,
        memory: u64,
        processes: u32,
        cpus: f64,
    ) -> Result<Self> {
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
                removed: AtomicBool::new(false),
            }),
        };
        made.map_err(|error| Error::Setup {
            step: "create a control group".into(),
            problem: error.to_string(),
        })
    }

    pub(crate) fn start_in(&self) -> Option<BorrowedFd<'_>> {
        self.start_in.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tasks.iter().map(AsFd::as_fd)
    }

    /// Puts a process under the limits, where it neither starts under them nor enters by itself.
    pub(crate) async fn attach(&mut self, pid: u32) -> io::Result<()> {
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

    /// How often the OOM killer has killed in this group.
    pub(crate) fn oom_kills(&self) -> u64 {
        read_field(&self.files.oom, "oom_kill ").unwrap_or(0)
    }

    pub(crate) fn peak_memory(&self) -> Option<u64> {
        read_number(&self.files.peak).or_else(|| read_number(&self.files.current))
    }

    /// Resets the peak. Only version 1 supports it.
    pub(crate) fn forget_peak(&self) -> bool {
        self.files.peak.ends_with(v1::PEAK) && std::fs::write(&self.files.peak, "0").is_ok()
    }

    /// Memory of TCP buffers, where it is counted separately.
    pub(crate) fn tcp_memory(&self) -> u64 {
        self.files.tcp.as_deref().and_then(read_number).unwrap_or(0)
    }

    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        match self.files.cpu.ends_with(v1::CPU) {
            true => read_number(&self.files.cpu).map(Duration::from_nanos),
            false => read_field(&self.files.cpu, "usage_usec ").map(Duration::from_micros),
        }
    }

    /// How often a fork failed.
    pub(crate) fn refused_processes(&self) -> u64 {
        read_field(&self.files.pids_events, "max ").unwrap_or(0)
    }

    /// Removes the group once its processes are gone.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if !self.removed.load(Ordering::Relaxed) {
            self.folders.iter().try_for_each(|folder| remove(folder))?;
            self.removed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Usually removed already.
        for _ in 0..50 {
            match self.remove() {
                Err(error) if is_busy(&error) => std::thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
        // Whoever drops it does not wait for long. One that still has a process then is swept later.
        let mut folders = std::mem::take(&mut self.folders);
        let end = Instant::now() + GROUP_PATIENCE;
        let later = move || {
            while !folders.is_empty() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
                folders.retain(|folder| remove(folder).is_err_and(|error| is_busy(&error)));
            }
        };
        let _ = std::thread::Builder::new().spawn(later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_owner_of_this_namespace_is_known_to_be_dead() {
        let (own, namespace) = (std::process::id(), pid_namespace());
        let started = start_time(own).expect("a start time");
        assert!(owner_lives(&new_name()));
        assert!(!owner_lives(&format!(
            "brig-{own}-{}-{namespace}-0",
            started + 1
        )));
        // Its id says nothing here.
        assert!(owner_lives(&format!(
            "brig-{own}-{}-1{namespace}-0",
            started + 1
        )));
        assert!(owner_lives("brig-"));
    }

    #[test]
    fn owners_are_told_apart_by_all_that_names_them() {
        let (own, namespace) = (std::process::id(), pid_namespace());
        let started = start_time(own).expect("a start time");
        let mut owners = Owners::default();
        for (name, lives) in [
            (format!("brig-{own}-{started}-{namespace}-0"), true),
            (format!("brig-{own}-{}-{namespace}-0", started + 1), false),
            (format!("brig-{own}-{}-1{namespace}-0", started + 1), true),
            (format!("brig-{own}-{}-{namespace}", started + 1), false),
            (format!("brig-{own}-{started}-{namespace}-1.scope"), true),
            (
                format!("brig-{own}-{}-{namespace}-1.scope", started + 1),
                false,
            ),
            ("brig-".to_owned(), true),
        ] {
            assert_eq!(owners.lives(&name), lives, "{name}");
            assert_eq!(owner_lives(&name), lives, "{name}");
        }
        assert_eq!(owners.known.len(), 4);
    }
}
