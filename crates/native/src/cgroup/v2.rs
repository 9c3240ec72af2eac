//! Version 2: one tree, in which a group either has processes or hands controllers on.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::v1::writable;
use super::{Cgroups, Files, Group, Numbers};

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
const PERIOD_US: u64 = 100_000;

pub fn find(mounts: &str, own: &str) -> Option<Cgroups> {
    let mount = mounts.lines().find_map(mount_point)?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = Path::new(mount).join(path.trim_start_matches('/'));
    if let Some(base) = below_own(&own).or_else(|| below_root(Path::new(mount))) {
        return Some(Cgroups::V2(base));
    }
    user_manager(Path::new(mount)).then_some(Cgroups::Systemd)
}

fn mount_point(line: &str) -> Option<&str> {
    let (left, right) = line.split_once(" - ")?;
    right
        .starts_with("cgroup2 ")
        .then(|| left.split(' ').nth(4))?
}

/// Whether all controllers that Brig needs are named in a file.
fn has(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS
        .iter()
        .all(|name| text.split_whitespace().any(|word| word == *name))
}

/// Looks before it writes: the kernel takes milliseconds even to refuse.
fn hand_on(folder: &Path) -> bool {
    let control = folder.join("cgroup.subtree_control");
    if !has(&folder.join("cgroup.controllers")) {
        return false;
    }
    has(&control) || (fs::write(&control, "+memory +pids +cpu").is_ok() && has(&control))
}

/// Our own group, if it was delegated to us: then we step aside into a leaf of it, because a group
/// that hands controllers on may have no processes itself.
fn below_own(own: &Path) -> Option<PathBuf> {
    if !writable(own) || !has(&own.join("cgroup.controllers")) {
        return None;
    }
    if hand_on(own) {
        return Some(own.to_owned());
    }
    // After a start in a group that stepped aside already, the parent is the one to use.
    if own.file_name().is_some_and(|name| name == ASIDE)
        && let Some(parent) = own.parent()
        && writable(parent)
        && hand_on(parent)
    {
        return Some(parent.to_owned());
    }
    let alone = fs::read_to_string(own.join("cgroup.procs")).is_ok_and(|pids| {
        pids.split_whitespace()
            .all(|pid| pid == std::process::id().to_string())
    });
    if !alone {
        return None;
    }
    let aside = own.join(ASIDE);
    fs::create_dir(&aside).ok()?;
    let moved = fs::write(aside.join("cgroup.procs"), std::process::id().to_string());
    (moved.is_ok() && hand_on(own)).then(|| own.to_owned())
}

const ASIDE: &str = "brig.self";

/// Root may use a group of Brig's own at the top.
fn below_root(mount: &Path) -> Option<PathBuf> {
    if !geteuid().is_root() || !writable(mount) || !hand_on(mount) {
        return None;
    }
    let base = mount.join("brig");
    match fs::create_dir(&base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    hand_on(&base).then_some(base)
}

pub fn create(base: &Path, name: String, numbers: Numbers) -> io::Result<Group> {
    let folder = base.join(&name);
    fs::create_dir(&folder)?;
    let mut group = Group {
        files: files(&folder),
        folders: vec![folder.clone()],
        start_in: None,
        tasks: Vec::new(),
        numbers,
        name,
    };
    limit(&folder, numbers)?;
    group.start_in = Some(OwnedFd::from(File::open(&folder)?));
    Ok(group)
}

fn limit(folder: &Path, numbers: Numbers) -> io::Result<()> {
    fs::write(folder.join("memory.max"), numbers.memory.to_string())?;
    let swap = folder.join("memory.swap.max");
    if swap.exists() {
        fs::write(swap, "0")?;
    }
    fs::write(folder.join("pids.max"), numbers.processes.to_string())?;
    let quota = (numbers.cpus * PERIOD_US as f64) as u64;
    fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}"))
}

fn files(folder: &Path) -> Files {
    Files {
        oom: folder.join("memory.events"),
        peak: folder.join("memory.peak"),
        current: folder.join("memory.current"),
        tcp: None,
        pids_events: folder.join("pids.events"),
    }
}

/// Whether the user's service manager can be asked for a scope. Its own group tells what it can
/// give; ours may lack a controller only because nothing in it has asked for one yet.
fn user_manager(mount: &Path) -> bool {
    let uid = geteuid().as_raw();
    let manager = format!("user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers");
    has(&mount.join(manager))
        && std::env::var_os("XDG_RUNTIME_DIR")
            .is_some_and(|folder| Path::new(&folder).join("systemd/private").exists())
}

/// Asks the user's service manager for a scope around a process, and puts the limits on a group
/// below it. On the scope itself they would not do: for one program that is killed for want of
/// memory there, the manager ends the whole scope.
pub async fn scope(name: &str, pid: u32, numbers: Numbers) -> io::Result<(PathBuf, Files)> {
    let (unit, pid_text) = (format!("{name}.scope"), pid.to_string());
    let arguments = [
        "--user",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        &unit,
        "fail",
        "3",
        "PIDs",
        "au",
        "1",
        &pid_text,
        "Delegate",
        "b",
        "true",
        // Forgotten also when it failed.
        "CollectMode",
        "s",
        "inactive-or-failed",
        "0",
    ];
    let output = tokio::process::Command::new("busctl")
        .args(arguments)
        .output()
        .await?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!(
            "the user's systemd gave no scope: {text}"
        )));
    }
    // The answer comes before the process has moved.
    for _ in 0..200 {
        if let Some(scope) = scope_folder(pid, &unit) {
            let folder = scope.join("sandbox");
            fs::create_dir(&folder)?;
            fs::write(folder.join("cgroup.procs"), &pid_text)?;
            if !hand_on(&scope) {
                return Err(io::Error::other(
                    "the scope of the user's systemd lacks a controller",
                ));
            }
            limit(&folder, numbers)?;
            let files = files(&folder);
            return Ok((folder, files));
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Err(io::Error::other(
        "the user's systemd did not move the sandbox into its scope",
    ))
}

fn scope_folder(pid: u32, unit: &str) -> Option<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(mount_point)?;
    path.ends_with(unit)
        .then(|| Path::new(mount).join(path.trim_start_matches('/')))
}
