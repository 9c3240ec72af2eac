//! The description of a container. Everything here is always on.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use brig_linux::mediate::HANDOFF;
use brig_sandbox::{Limits, Plan, Result};

use crate::apparmor;
use crate::derived::GUEST;
use crate::engine::Facts;
use crate::engine_files;
use crate::image::Image;
use crate::limits::OWN_PROCESSES;
use crate::mounts::{self, WORKSPACE};
use crate::runtime::{Kind, Runtime};
use crate::user::ContainerUser;

/// What gVisor itself needs: memory, threads, and threads for each thread of the container.
const GVISOR_MEMORY: u64 = 256 * 1024 * 1024;
const GVISOR_THREADS: u64 = 1024;
const GVISOR_THREADS_EACH: u64 = 8;

/// What a container is created from.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub plan: &'a Plan,
    pub facts: &'a Facts,
    pub runtime: &'a Runtime,
    pub image: &'a Image,
    pub user: ContainerUser,
    /// The image with the guest in it.
    pub derived: &'a str,
    /// The AppArmor profile of the session.
    pub profile: Option<&'a str>,
    pub labels: HashMap<String, String>,
    pub local: bool,
    /// A file of this machine by which the guest recognises it.
    pub nonce: Option<&'a Path>,
    /// For an engine that needs them.
    pub engine_files: Option<&'a Path>,
    /// Where the engine has the files for looking up names.
    pub lookup: Option<&'a str>,
    /// The volume with files of the session.
    pub cache: Option<&'a str>,
}

pub(crate) fn body(parts: Parts<'_>) -> Result<ContainerCreateBody> {
    let host_config = host_config(&parts)?;
    let profile = parts
        .profile
        .map(|name| (apparmor::LABEL.to_owned(), name.to_owned()));
    Ok(ContainerCreateBody {
        image: Some(parts.derived.to_owned()),
        entrypoint: Some(vec![GUEST.into()]),
        cmd: Some(vec!["stdio".into()]),
        user: Some(parts.user.name()),
        working_dir: Some("/".into()),
        hostname: Some("brig".into()),
        labels: Some(parts.labels.into_iter().chain(profile).collect()),
        open_stdin: Some(true),
        // When the owner is gone, stdin ends, and the guest exits.
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        // A network namespace with nothing but loopback, which the engine does not set up further.
        network_disabled: parts.lookup.map(|_| true),
        // No health check of the image: the engine would run it in the container.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".into()]),
            ..HealthConfig::default()
        }),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    })
}

fn host_config(parts: &Parts<'_>) -> Result<HostConfig> {
    let limits = parts.plan.limits();
    let counted = |value: i64| (!parts.runtime.without_cgroups).then_some(value);
    let (memory, processes) = group_limits(parts.runtime, limits);
    let differences = parts.facts.product.differences();
    let listed = |paths: Vec<String>| differences.masked_paths.then_some(paths);
    #[expect(clippy::cast_possible_truncation, reason = "billionths of a CPU")]
    let cpus = (limits.cpus.value * 1e9) as i64;
    Ok(HostConfig {
        network_mode: Some("none".into()),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(security(parts)),
        privileged: Some(false),
        readonly_rootfs: Some(parts.plan.read_only_root()),
        pids_limit: counted(processes).filter(|_| parts.facts.pids),
        memory: counted(memory).filter(|_| parts.facts.memory),
        memory_swap: counted(memory).filter(|_| parts.facts.memory && parts.facts.swap),
        nano_cpus: counted(cpus).filter(|_| parts.facts.cpu),
        ulimits: Some(ulimits(parts)),
        // The OOM killer prefers the container to the host, but its programs to the guest.
        oom_score_adj: Some(500),
        init: Some(false),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".into()),
            ..HostConfigLogConfig::default()
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            ..RestartPolicy::default()
        }),
        auto_remove: Some(false),
        ipc_mode: Some("private".into()),
        cgroupns_mode: (parts.runtime.kind != Kind::Gvisor)
            .then_some(HostConfigCgroupnsModeEnum::PRIVATE),
        // For listeners on ports 80 and 443 without a capability.
        sysctls: (parts.runtime.kind != Kind::Gvisor)
            .then(|| HashMap::from([("net.ipv4.ip_unprivileged_port_start".into(), "0".into())])),
        dns: Some(vec!["127.0.0.1".into()]),
        dns_search: Some(vec![".".into()]),
        extra_hosts: Some(Vec::new()),
        mounts: mounts::all(parts)?,
        tmpfs: Some(tmpfs(parts)),
        masked_paths: listed(masked()),
        readonly_paths: listed(read_only()),
        runtime: Some(parts.runtime.name.clone()),
        ..HostConfig::default()
    })
}

/// The memory and the processes of the control group. Where the guest counts, the group only bounds the runtime
/// as a whole.
fn group_limits(runtime: &Runtime, limits: &Limits) -> (i64, i64) {
    let memory = limits.memory_bytes.value;
    let processes = limits.processes.value;
    if runtime.counts_inside() {
        let threads = u64::from(processes)
            .saturating_mul(GVISOR_THREADS_EACH)
            .saturating_add(GVISOR_THREADS);
        (
            integer(memory.saturating_add(GVISOR_MEMORY)),
            integer(threads),
        )
    } else {
        let all = processes.saturating_add(OWN_PROCESSES);
        (integer(memory), i64::from(all))
    }
}

fn security(parts: &Parts<'_>) -> Vec<String> {
    let differences = parts.facts.product.differences();
    let mut options = vec!["no-new-privileges".to_owned()];
    if parts.facts.has("seccomp") {
        options.push(match parts.engine_files {
            Some(files) => format!("seccomp={}", engine_files::seccomp(files).display()),
            None => format!("seccomp={}", brig_profile::ENGINE),
        });
    }
    let profile = parts.profile.or(differences.apparmor);
    if let (true, Some(profile)) = (parts.facts.has("apparmor"), profile) {
        options.push(format!("apparmor={profile}"));
    }
    if !differences.masked_paths {
        options.push(format!("mask={}", masked().join(":")));
    }
    options
}

/// Kernel files that are hidden.
fn masked() -> Vec<String> {
    let beside = [
        "/dev/mqueue",
        "/sys/devices/virtual/powercap",
        "/sys/firmware",
    ];
    let hidden = brig_profile::PROC
        .lines()
        .filter_map(|line| line.strip_prefix("hide "));
    hidden.chain(beside).map(str::to_owned).collect()
}

fn read_only() -> Vec<String> {
    let lines = brig_profile::PROC.lines();
    let paths = lines.filter_map(|line| line.strip_prefix("read-only "));
    paths.map(str::to_owned).collect()
}

fn ulimits(parts: &Parts<'_>) -> Vec<ResourcesUlimits> {
    // Nothing that limits: all containers run as one user, so it counts the processes of all of them.
    let differences = parts.facts.product.differences();
    let own = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
    let processes = differences
        .user_processes
        .map(|most| ("nproc", most.min(own.unwrap_or(most))));
    let fixed = [
        // Not 0: with a pipe in core_pattern, the kernel would still start the host's helper.
        ("core", 1),
        ("nofile", u64::from(HANDOFF) + 1),
        ("fsize", parts.plan.limits().disk_bytes.value),
        ("msgqueue", 819_200),
        ("memlock", 8 * 1024 * 1024),
        ("nice", 0),
        ("rtprio", 0),
    ];
    let all = fixed.into_iter().chain(processes);
    let limit = |(name, value): (&str, u64)| ResourcesUlimits {
        name: Some(name.into()),
        soft: Some(integer(value)),
        hard: Some(integer(value)),
    };
    all.map(limit).collect()
}

/// All writable directories, which together are limited to the disk limit.
fn tmpfs(parts: &Parts<'_>) -> HashMap<String, String> {
    let (plan, ids) = (parts.plan, parts.user.inside);
    let differences = parts.facts.product.differences();
    // Without that, Podman copies what the image has there.
    let empty = if differences.tmpfs_ids {
        ""
    } else {
        ",notmpcopyup"
    };
    let disk = plan.limits().disk_bytes.value;
    let options = |size: u64, mode: u32, more: &str| {
        // A file takes about 1 KiB of kernel memory in addition to its content.
        let inodes = (size / 4096).max(256);
        let owner = match differences.tmpfs_ids {
            true => format!("nr_inodes={inodes},uid={},gid={}", ids.uid, ids.gid),
            false => "U".into(),
        };
        format!("rw,nosuid,nodev,{more}size={size},{owner},mode={mode:o}{empty}")
    };
    let mut places = HashMap::from([
        ("/tmp".to_owned(), options(disk / 8 * 2, 0o1777, "exec,")),
        ("/run/brig".to_owned(), options(disk / 16, 0o700, "noexec,")),
        // The default /dev/shm has no limit of inodes.
        ("/dev/shm".to_owned(), options(disk / 16, 0o1777, "noexec,")),
    ]);
    // The workspace, or the home directory beside one that is a host directory.
    let mounted = |place: &str| {
        let mut targets = plan.mounts().iter().map(|mount| &mount.target);
        targets.any(|target| target == std::path::Path::new(place))
    };
    if !mounted(plan.home()) {
        // Accesses tell the guest which files may have been mapped.
        let seen = differences.tmpfs_access && parts.runtime.kind == Kind::Plain;
        let more = if seen { "exec,strictatime," } else { "exec," };
        places.insert(plan.home().into(), options(disk / 8 * 5, 0o755, more));
    }
    // A volume of the image would be an unlimited directory of the engine.
    let volumes = parts.image.volumes.iter().map(String::as_str);
    let writable = differences.writable_places.iter().copied();
    for place in volumes.chain(writable.filter(|_| plan.read_only_root())) {
        let taken = places.contains_key(place) || place == WORKSPACE || mounted(place);
        if !taken {
            places.insert(
                place.into(),
                format!("ro,nosuid,nodev,noexec,size=4096{empty}"),
            );
        }
    }
    places
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
