//! Version 2: one tree, in which a group either has processes or enables controllers for its children.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;

use rustix::process::geteuid;
use tokio::sync::oneshot;

use super::v1::writable;
use super::{Cgroups, Files, Group, Numbers};

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
const PERIOD_US: u64 = 100_000;

/// Where no sandbox can write.
const BUSCTL: [&str; 3] = [
    "/usr/bin/busctl",
    "/bin/busctl",
    "/run/current-system/sw/bin/busctl",
];

pub(super) fn find(mounts: &str, own: &str) -> Option<Cgroups> {
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

/// Checks before it writes, because the kernel takes milliseconds even to refuse.
fn hand_on(folder: &Path) -> bool {
    let control = folder.join("cgroup.subtree_control");
    if !has(&folder.join("cgroup.controllers")) {
        return false;
    }
    has(&control) || (fs::write(&control, "+memory +pids +cpu").is_ok() && has(&control))
}

/// Our own group, if it was delegated to us. This process moves into a leaf of it, because a group that enables
/// controllers for its children may have no processes itself.
fn below_own(own: &Path) -> Option<PathBuf> {
    if !writable(own) || !has(&own.join("cgroup.controllers")) {
        return None;
    }
    if hand_on(own) {
        return Some(own.to_owned());
    }
    // If an ancestor of this process has moved into a leaf already, its parent is the group to use.
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

/// Root may use a group of its own at the top.
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

pub(super) fn create(base: &Path, name: String, numbers: Numbers) -> io::Result<Group> {
    let folder = base.join(&name);
    fs::create_dir(&folder)?;
    let mut group = Group {
        files: files(&folder),
        folders: vec![folder.clone()],
        start_in: None,
        tasks: Vec::new(),
        numbers,
        name,
        removed: AtomicBool::new(false),
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
    let quota = numbers.cpu_quota(PERIOD_US);
    fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}"))
}

fn files(folder: &Path) -> Files {
    Files {
        oom: folder.join("memory.events"),
        peak: folder.join("memory.peak"),
        current: folder.join("memory.current"),
        tcp: None,
        pids_events: folder.join("pids.events"),
        cpu: folder.join("cpu.stat"),
    }
}

/// Whether the user's service manager can create a scope. Decided by the controllers of its own group: ours may
/// lack one only because nothing in it uses it yet.
fn user_manager(mount: &Path) -> bool {
    let uid = geteuid().as_raw();
    let manager = format!("user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers");
    has(&mount.join(manager)) && runtime_directory().join("systemd/private").exists()
}

/// Where the sockets of the user's service manager are. The variable is often missing: after `su`, in cron, or
/// in a service.
fn runtime_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => folder.into(),
        None => format!("/run/user/{}", geteuid().as_raw()).into(),
    }
}

/// Lets the user's service manager create a scope for a process, and sets the limits on a group below it. Not on
/// the scope itself: when the OOM killer ends one program of a scope, the manager ends the whole scope.
///
/// The request goes on if nobody waits for it any more. A process that dies while the manager moves it leaves a
/// scope that never had one, which the manager keeps for good, so that scope is stopped.
pub(super) async fn scope(name: &str, pid: u32, numbers: Numbers) -> io::Result<(PathBuf, Files)> {
    let unit = format!("{name}.scope");
    let (done, answer) = oneshot::channel();
    tokio::spawn(async move {
        let made = make_scope(&unit, pid, numbers).await;
        let failed = made.is_err();
        let abandoned = done.send(made).is_err();
        if failed || abandoned {
            let _ = busctl(manager_call("StopUnit", &["ss", &unit, "replace"]))?
                .output()
                .await;
        }
        io::Result::Ok(())
    });
    answer.await.map_err(io::Error::other)?
}

async fn make_scope(unit: &str, pid: u32, numbers: Numbers) -> io::Result<(PathBuf, Files)> {
    let pid_text = pid.to_string();
    let arguments = [
        "ssa(sv)a(sa(sv))",
        unit,
        "fail",
        "3",
        "PIDs",
        "au",
        "1",
        &pid_text,
        "Delegate",
        "b",
        "true",
        // So that a failed scope is removed too.
        "CollectMode",
        "s",
        "inactive-or-failed",
        "0",
    ];
    let output = busctl(manager_call("StartTransientUnit", &arguments))?
        .output()
        .await?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!(
            "the user's systemd gave no scope: {text}"
        )));
    }
    // The manager answers before the process has moved.
    for _ in 0..200 {
        if let Some(scope) = scope_folder(pid, unit) {
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

/// Where the manager puts scopes.
pub(super) fn scopes() -> Option<PathBuf> {
    let mounts = brig_linux::mountinfo::read("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(mount_point)?;
    let uid = geteuid().as_raw();
    let slice = format!("user.slice/user-{uid}.slice/user@{uid}.service/app.slice");
    Some(Path::new(mount).join(slice))
}

/// Stops a scope by the name of its unit. The manager removes its groups.
pub(super) fn stop_scope(unit: &str) -> io::Result<()> {
    let mut command = busctl(manager_call("StopUnit", &["ss", unit, "replace"]))?;
    let output = command.as_std_mut().output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

fn manager_call<'a>(method: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec![
        "--user",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        method,
    ];
    words.extend(arguments);
    words
}

/// Not by PATH, and without the caller's environment: PATH may name a directory that code can write,
/// and this runs outside.
fn busctl(arguments: Vec<&str>) -> io::Result<tokio::process::Command> {
    let program = BUSCTL.iter().find(|path| Path::new(path).is_file());
    let program = program.ok_or_else(|| {
        io::Error::other(format!(
            "a scope of the user's systemd needs busctl, which is not at {}; install systemd's \
             package, or start Brig in a delegated control group",
            BUSCTL.join(" or ")
        ))
    })?;
    let mut command = tokio::process::Command::new(program);
    command.env_clear().current_dir("/").stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", runtime_directory());
    command.args(arguments);
    Ok(command)
}

fn scope_folder(pid: u32, unit: &str) -> Option<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = brig_linux::mountinfo::read("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(mount_point)?;
    path.ends_with(unit)
        .then(|| Path::new(mount).join(path.trim_start_matches('/')))
}
