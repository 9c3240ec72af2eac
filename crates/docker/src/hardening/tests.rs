use brig_sandbox::config::{MIB, MountSpec};
use brig_sandbox::{Backend, InitialState, Limit, SessionConfig};

use super::*;
use crate::backend::DockerBackend;
use crate::engine::Registered;

fn facts() -> Facts {
    let runtime = |name: &str, args: &[&str]| Registered {
        name: name.into(),
        path: name.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    };
    Facts {
        runtimes: vec![
            runtime("runc", &[]),
            runtime("runsc", &["--ignore-cgroups"]),
        ],
        default_runtime: "runc".into(),
        security: vec!["name=seccomp,profile=default".into()],
        cgroup: "1".into(),
        memory: true,
        swap: true,
        cpu: true,
        pids: true,
        ..Facts::default()
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn planned(config: &SessionConfig, backend: &DockerBackend) -> Plan {
    wait(Plan::make(config, backend, InitialState::Empty)).expect("a plan")
}

fn made(config: &SessionConfig, facts: &Facts, image: &Image) -> ContainerCreateBody {
    let backend = DockerBackend::of_facts(facts.clone());
    let mut config = config.clone();
    let runtime = config.options.entry("runtime".into());
    runtime.or_insert_with(|| "runc".into());
    let offer = wait(backend.probe(&config)).expect("it can be used");
    let controls = offer.controls.0.iter();
    config.waive.extend(controls.map(|state| state.control));
    let plan = planned(&config, &backend);
    let runtime =
        Runtime::named(facts, plan.option("runtime").expect("a name")).expect("a runtime");
    body(Parts {
        plan: &plan,
        facts,
        runtime: &runtime,
        image,
        user: ContainerUser::of(&plan, facts, &runtime, None, image),
        derived: "brig-derived:x",
        profile: None,
        labels: HashMap::from([("brig.owner".into(), "1.1".into())]),
        local: true,
        nonce: None,
        engine_files: None,
        lookup: Some("/volumes/lookup"),
        cache: None,
    })
    .expect("a body")
}

fn usual() -> (ContainerCreateBody, HostConfig) {
    let body = made(&SessionConfig::default(), &facts(), &Image::default());
    let host = body.host_config.clone().expect("a host config");
    (body, host)
}

#[test]
fn the_guest_runs_as_nobody_and_is_spoken_to_over_its_streams() {
    let (body, host) = usual();
    assert_eq!(body.image.as_deref(), Some("brig-derived:x"));
    assert_eq!(body.entrypoint, Some(vec!["/.brig/guest".into()]));
    assert_eq!(body.cmd, Some(vec!["stdio".into()]));
    assert_eq!(body.user.as_deref(), Some("65534:65534"));
    assert_eq!(body.working_dir.as_deref(), Some("/"));
    assert_eq!(body.tty, Some(false));
    for open in [
        body.open_stdin,
        body.stdin_once,
        body.attach_stdin,
        body.attach_stdout,
    ] {
        assert_eq!(open, Some(true));
    }
    assert_eq!(
        body.healthcheck.and_then(|check| check.test),
        Some(vec!["NONE".into()])
    );
    assert_eq!(body.labels.map(|labels| labels.len()), Some(1));
    assert_eq!(host.init, Some(false));
    assert_eq!(host.auto_remove, Some(false));
    assert_eq!(
        host.restart_policy.and_then(|policy| policy.name),
        Some(RestartPolicyNameEnum::NO)
    );
    assert_eq!(
        host.log_config.and_then(|log| log.typ).as_deref(),
        Some("none")
    );
}

#[test]
fn it_has_no_rights_and_no_network() {
    let (body, host) = usual();
    assert_eq!(body.network_disabled, Some(true));
    assert_eq!(host.cap_drop, Some(vec!["ALL".into()]));
    assert_eq!(host.cap_add, None);
    assert_eq!(host.privileged, Some(false));
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!(host.readonly_rootfs, Some(true));
    assert_eq!(host.ipc_mode.as_deref(), Some("private"));
    assert_eq!(
        host.cgroupns_mode,
        Some(HostConfigCgroupnsModeEnum::PRIVATE)
    );
    assert_eq!(
        host.extra_hosts,
        Some(Vec::new()),
        "no way to the host by name"
    );
    assert_eq!(host.dns, Some(vec!["127.0.0.1".into()]));
    assert_eq!(host.binds, None);
    for shared in [
        host.pid_mode,
        host.uts_mode,
        host.userns_mode,
        host.cgroup_parent,
    ] {
        assert_eq!(shared, None);
    }
    assert!(host.devices.is_none() && host.device_requests.is_none() && host.group_add.is_none());
    assert!(host.port_bindings.is_none() && host.volumes_from.is_none() && host.links.is_none());
}

#[test]
fn the_profile_of_system_calls_is_text_and_never_a_word() {
    let (_, host) = usual();
    let options = host.security_opt.expect("options");
    assert_eq!(options[0], "no-new-privileges");
    let profile = options[1].strip_prefix("seccomp=").expect("seccomp");
    let profile: serde_json::Value = serde_json::from_str(profile).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(options.len(), 2, "no AppArmor where the engine has none");
    let with = Facts {
        security: vec!["name=apparmor".into()],
        ..facts()
    };
    let body = made(&SessionConfig::default(), &with, &Image::default());
    let options = body.host_config.and_then(|host| host.security_opt);
    assert_eq!(
        options,
        Some(vec![
            "no-new-privileges".into(),
            "apparmor=docker-default".into()
        ])
    );
}

#[test]
fn limits_reach_the_engine() {
    let mut config = SessionConfig::default();
    config.limits.memory_bytes = Limit::asked(64 * MIB);
    config.limits.processes = Limit::asked(10);
    config.limits.cpus = Limit::asked(0.5);
    config.limits.disk_bytes = Limit::asked(32 * MIB);
    let body = made(&config, &facts(), &Image::default());
    let host = body.host_config.expect("a host config");
    assert_eq!(host.memory, Some(64 * 1024 * 1024));
    assert_eq!(host.memory_swap, host.memory, "no swap on top");
    assert_eq!(
        host.pids_limit,
        Some(12),
        "the guest and its keeper beside the program's"
    );
    assert_eq!(host.nano_cpus, Some(500_000_000));
    let of = |name: &str| {
        let ulimits = host.ulimits.as_ref().expect("ulimits");
        let found = ulimits
            .iter()
            .find(|limit| limit.name.as_deref() == Some(name));
        found.map(|limit| (limit.soft, limit.hard))
    };
    assert_eq!(of("core"), Some((Some(1), Some(1))));
    assert_eq!(of("nofile"), Some((Some(4096), Some(4096))));
    assert_eq!(of("fsize"), Some((Some(32 << 20), Some(32 << 20))));
    assert_eq!(of("nproc"), None, "it would count the processes of others");
    // Programs take 1000, and lowering it is not theirs to do.
    assert_eq!(host.oom_score_adj, Some(500));
}

#[test]
fn gvisor_has_room_beside_what_the_guest_counts() {
    let mut facts = facts();
    facts.runtimes[1].args.clear();
    let mut config = SessionConfig {
        options: [("runtime".into(), "runsc".into())].into(),
        ..SessionConfig::default()
    };
    config.limits.memory_bytes = Limit::asked(64 * MIB);
    config.limits.processes = Limit::asked(10);
    let host = made(&config, &facts, &Image::default()).host_config;
    let host = host.expect("a host config");
    assert_eq!(host.memory, Some(320 * 1024 * 1024));
    assert_eq!(host.pids_limit, Some(1104));
    assert!(host.nano_cpus.is_some());
}

#[test]
fn what_can_be_written_is_no_more_than_the_disk_in_all() {
    let mut config = SessionConfig::default();
    config.limits.disk_bytes = Limit::asked(64 * MIB);
    let body = made(&config, &facts(), &Image::default());
    let host = body.host_config.expect("a host config");
    let places = host.tmpfs.expect("tmpfs");
    let mut sum = 0;
    for (place, options) in &places {
        for option in ["nosuid", "nodev", "uid=65534", "gid=65534"] {
            assert!(
                options.split(',').any(|given| given == option),
                "{place}: {options}"
            );
        }
        let size = options
            .split(',')
            .find_map(|option| option.strip_prefix("size="));
        sum += size.expect("a size").parse::<u64>().expect("a number");
    }
    assert_eq!(sum, 64 * MIB);
    let mut names: Vec<&str> = places.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["/dev/shm", "/run/brig", "/tmp", "/workspace"]);
    let masked = host.masked_paths.expect("masked");
    for path in [
        "/proc/kallsyms",
        "/proc/keys",
        "/sys/firmware",
        "/dev/mqueue",
    ] {
        assert!(masked.iter().any(|one| one == path), "{path}");
    }
    assert!(places["/run/brig"].contains("noexec"));
}

#[test]
fn volumes_of_an_image_are_covered() {
    let image = Image {
        volumes: vec!["/var/lib/data".into(), "/tmp".into()],
        ..Image::default()
    };
    let body = made(&SessionConfig::default(), &facts(), &image);
    let places = body.host_config.and_then(|host| host.tmpfs).expect("tmpfs");
    assert!(places["/var/lib/data"].starts_with("ro,"));
    assert!(places["/tmp"].starts_with("rw,"), "ours comes first");
}

#[test]
fn a_runtime_without_control_groups_is_not_asked_for_them() {
    let config = SessionConfig {
        options: [("runtime".into(), "gvisor".into())].into(),
        ..SessionConfig::default()
    };
    let body = made(&config, &facts(), &Image::default());
    let host = body.host_config.expect("a host config");
    assert_eq!(host.runtime.as_deref(), Some("runsc"));
    assert_eq!(
        (
            host.memory,
            host.memory_swap,
            host.nano_cpus,
            host.pids_limit
        ),
        (None, None, None, None)
    );
}

#[test]
fn folders_of_the_host_are_bound_as_asked_or_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let source = folder.path().canonicalize().expect("path");
    let config = |writable| SessionConfig {
        mounts: vec![MountSpec {
            source: source.clone(),
            target: "/data".into(),
            writable,
        }],
        ..SessionConfig::default()
    };
    let body = made(&config(false), &facts(), &Image::default());
    let mounts = body.host_config.and_then(|host| host.mounts);
    let mounts = mounts.expect("mounts");
    let [mount, lookup @ ..] = mounts.as_slice() else {
        panic!("{mounts:?}")
    };
    // The files for looking up names, which are read-only too.
    assert_eq!(lookup.len(), 3);
    for file in lookup {
        assert_eq!(file.read_only, Some(true));
        let source = file.source.as_deref().unwrap_or_default();
        assert!(source.starts_with("/volumes/lookup/"), "{source}");
    }
    // Not as a `binds` entry: for that the engine would make what is missing, as root.
    assert_eq!(mount.typ, Some(bollard::models::MountType::BIND));
    assert_eq!(mount.source.as_deref(), source.to_str());
    assert_eq!(mount.target.as_deref(), Some("/data"));
    assert_eq!(mount.read_only, Some(true));
    let propagation = mount
        .bind_options
        .as_ref()
        .and_then(|bind| bind.propagation);
    assert_eq!(
        propagation,
        Some(bollard::models::MountBindOptionsPropagationEnum::RPRIVATE)
    );

    let backend = DockerBackend::of_facts(facts());
    let plan = |writable| {
        let config = SessionConfig {
            options: [("runtime".into(), "runc".into())].into(),
            ..config(writable)
        };
        planned(&config, &backend)
    };
    let runc = Runtime::named(&facts(), "runc").expect("a runtime");
    let binds = |writable, local| {
        let plan = plan(writable);
        // Run by nobody that is known, so that the directory is of another user.
        let user = ContainerUser::of(&plan, &facts(), &runc, None, &Image::default());
        mounts::binds(&plan, user, local)
    };
    let error = binds(true, true).expect_err("nobody may write there");
    assert!(error.to_string().contains("chmod o+w"), "{error}");
    assert!(
        binds(false, false).is_err(),
        "another machine has other files"
    );
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    assert!(binds(true, true).is_ok());
}
