//! What a container is made of. Everything here is on by default, and nothing turns it off.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use brig_sandbox::{Plan, Result};

use crate::apparmor;
use crate::derived::GUEST;
use crate::engine::Facts;
use crate::image::Image;
use crate::limits::OWN_PROCESSES;
use crate::mounts::{self, WORKSPACE};
use crate::runtime::{Kind, Runtime};

/// Nobody, inside and out.
pub const USER: u32 = 65534;

/// What a container is made from.
#[derive(Debug)]
pub struct Parts<'a> {
    pub plan: &'a Plan,
    pub facts: &'a Facts,
    pub runtime: &'a Runtime,
    pub image: &'a Image,
    /// The image with the guest in it.
    pub derived: &'a str,
    /// An AppArmor profile of its own.
    pub profile: Option<&'a str>,
    pub labels: HashMap<String, String>,
    pub local: bool,
}

pub fn body(parts: Parts<'_>) -> Result<ContainerCreateBody> {
    let host_config = host_config(&parts)?;
    let profile = parts
        .profile
        .map(|name| (apparmor::LABEL.to_owned(), name.to_owned()));
    Ok(ContainerCreateBody {
        image: Some(parts.derived.to_owned()),
        entrypoint: Some(vec![GUEST.into()]),
        cmd: Some(vec!["stdio".into()]),
        user: Some(format!("{USER}:{USER}")),
        working_dir: Some("/".into()),
        hostname: Some("brig".into()),
        labels: Some(parts.labels.into_iter().chain(profile).collect()),
        open_stdin: Some(true),
        // When its owner is gone its input ends, and with it the guest.
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        // Not what the image says: the engine would run that inside.
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
    let memory = integer(limits.memory_bytes.value);
    let counted = |value: i64| (!parts.runtime.without_cgroups).then_some(value);
    let processes = limits.processes.value.saturating_add(OWN_PROCESSES);
    let cpus = (limits.cpus.value * 1e9) as i64;
    Ok(HostConfig {
        network_mode: Some("none".into()),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(security(parts.facts, parts.profile)),
        privileged: Some(false),
        readonly_rootfs: Some(parts.plan.read_only_root()),
        pids_limit: counted(i64::from(processes)).filter(|_| parts.facts.pids),
        memory: counted(memory).filter(|_| parts.facts.memory),
        memory_swap: counted(memory).filter(|_| parts.facts.memory && parts.facts.swap),
        nano_cpus: counted(cpus).filter(|_| parts.facts.cpu),
        ulimits: Some(ulimits(parts.plan)),
        // Among the first to go when the machine runs out of memory, but after its programs.
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
        // Doors on the ports of the web, opened by a user without rights.
        sysctls: (parts.runtime.kind != Kind::Gvisor)
            .then(|| HashMap::from([("net.ipv4.ip_unprivileged_port_start".into(), "0".into())])),
        dns: Some(vec!["127.0.0.1".into()]),
        dns_search: Some(vec![".".into()]),
        // Nobody answers where there are no doors. glibc is told so by the kernel; musl would wait.
        dns_options: (!parts.plan.network().is_on()).then(|| vec!["timeout:0".into()]),
        extra_hosts: Some(Vec::new()),
        binds: Some(mounts::binds(parts.plan, parts.local)?),
        tmpfs: Some(tmpfs(parts.plan, parts.image)),
        masked_paths: Some(masked()),
        readonly_paths: Some(read_only()),
        runtime: Some(parts.runtime.name.clone()),
        ..HostConfig::default()
    })
}

fn security(facts: &Facts, profile: Option<&str>) -> Vec<String> {
    let mut options = vec!["no-new-privileges".to_owned()];
    if facts.has("seccomp") {
        options.push(format!("seccomp={}", brig_profile::ENGINE));
    }
    if facts.has("apparmor") {
        options.push(format!("apparmor={}", profile.unwrap_or("docker-default")));
    }
    options
}

/// What tells about the kernel or reaches into it.
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

fn ulimits(plan: &Plan) -> Vec<ResourcesUlimits> {
    // No limit of processes: it would count those of all containers, which have one user.
    [
        // Not 0: that would still feed a crash to a helper of the host's where one is set up.
        ("core", 1),
        ("nofile", 4096),
        ("fsize", plan.limits().disk_bytes.value),
        ("msgqueue", 819_200),
        ("memlock", 8 * 1024 * 1024),
        ("nice", 0),
        ("rtprio", 0),
    ]
    .map(|(name, value)| ResourcesUlimits {
        name: Some(name.into()),
        soft: Some(integer(value)),
        hard: Some(integer(value)),
    })
    .into()
}

/// All places that can be written, which together hold no more than the plan allows.
fn tmpfs(plan: &Plan, image: &Image) -> HashMap<String, String> {
    let disk = plan.limits().disk_bytes.value;
    let options = |size: u64, mode: u32, more: &str| {
        // A name takes a kibibyte or so of the kernel's memory, beside what is in it.
        let inodes = (size / 4096).max(256);
        format!(
            "rw,nosuid,nodev,{more}size={size},nr_inodes={inodes},uid={USER},gid={USER},mode={mode:o}"
        )
    };
    let mut places = HashMap::from([
        ("/tmp".to_owned(), options(disk / 8 * 2, 0o1777, "exec,")),
        ("/run/brig".to_owned(), options(disk / 16, 0o700, "noexec,")),
        // The engine's own has no limit of names.
        ("/dev/shm".to_owned(), options(disk / 16, 0o1777, "noexec,")),
    ]);
    if plan.workspace().is_none() {
        places.insert(WORKSPACE.into(), options(disk / 8 * 5, 0o755, "exec,"));
    }
    // What an image declares as a volume would be an unlimited folder of the engine's.
    for volume in &image.volumes {
        let taken = places.contains_key(volume)
            || volume == WORKSPACE
            || plan
                .mounts()
                .iter()
                .any(|mount| mount.target == std::path::Path::new(volume));
        if !taken {
            places.insert(volume.clone(), "ro,nosuid,nodev,noexec,size=4096".into());
        }
    }
    places
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
