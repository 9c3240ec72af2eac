//! Which controls each runtime enforces, and by which mechanism.

use brig_linux::mediate::{self, MediatedCalls};
use brig_linux::notify;
use brig_profile::Folders;
use brig_sandbox::{Control, ControlState, Controls, Plan, SessionConfig, Strength};
use brig_wire::{Confine, Rlimit};

use crate::engine::Facts;
use crate::runtime::{Kind, Runtime};

/// `RLIMIT_NOFILE`.
const NOFILE: u32 = 7;

/// The guest and one keeper.
pub(crate) const OWN_PROCESSES: u32 = 2;

const WATCHED: &str = "the guest, which reads the counters of its kernel";
const GVISOR_CGROUPS: &str =
    "remove --ignore-cgroups from the runtime's arguments, or use --runtime runc";
const NATIVE: &str = "use the native backend";

/// The state of one control.
fn state(control: Control, strength: Strength, by: &str, fix: Option<&str>) -> ControlState {
    ControlState {
        control,
        strength,
        by: by.into(),
        fix: fix.map(str::to_owned),
    }
}

/// `armor`: whether profiles can be loaded, or how to make that possible.
pub(crate) fn controls(
    facts: &Facts,
    runtime: &Runtime,
    armor: Result<(), &str>,
    config: &SessionConfig,
) -> Controls {
    let enforced = |control, by: &str| state(control, Strength::Enforced, by, None);
    let mut states = vec![
        cgroup(facts, runtime, Control::Cpu, facts.cpu),
        cgroup(facts, runtime, Control::Memory, facts.memory),
        cgroup(facts, runtime, Control::Processes, facts.pids),
        disk(facts, runtime, config),
        enforced(
            Control::WallTime,
            "timer outside the sandbox, kill of the process tree",
        ),
        enforced(Control::OutputSize, "counted outside the sandbox"),
        enforced(
            Control::NetworkOff,
            "a network namespace without a route to the outside",
        ),
        enforced(
            Control::NetworkHosts,
            "a gateway outside the sandbox that serves what the guest relays",
        ),
        enforced(Control::Tools, brig_guest_host::tools::GATE),
        enforced(Control::Checkpoint, "copied layers with digests"),
        enforced(Control::ReadOnlyRoot, "a read-only root of the container"),
        mounts(runtime),
        enforced(Control::Filesystem, "a separate root file system"),
        syscalls(facts, runtime),
        enforced(Control::Signals, "the guest, which passes them on"),
        enforced(Control::LinuxUserland, "the programs of the image"),
    ];
    states.extend(commands(runtime, armor));
    Controls(states)
}

/// Limits by control groups, if the runtime uses them.
fn cgroup(facts: &Facts, runtime: &Runtime, control: Control, offered: bool) -> ControlState {
    if runtime.without_cgroups {
        return match control {
            Control::Cpu => state(
                control,
                Strength::Absent,
                "the runtime is configured with --ignore-cgroups",
                Some(GVISOR_CGROUPS),
            ),
            _ => state(control, Strength::Observed, WATCHED, Some(GVISOR_CGROUPS)),
        };
    }
    if !offered {
        let by = "the engine has no control group for it";
        return state(
            control,
            Strength::Absent,
            by,
            Some("boot the engine's machine with that controller"),
        );
    }
    let by = match runtime.kind {
        Kind::Kata => "a virtual machine".into(),
        Kind::Gvisor if control != Control::Cpu => format!(
            "the guest, which counts inside, and cgroup v{} of the engine, which has room for gVisor itself",
            facts.cgroup
        ),
        Kind::Gvisor | Kind::Plain => format!("cgroup v{} of the engine", facts.cgroup),
    };
    state(control, Strength::Enforced, &by, None)
}

/// Stand-ins are in the image, and so work in every runtime. The guest sees starts of programs only where the
/// kernel has seccomp notifications.
fn commands(runtime: &Runtime, armor: Result<(), &str>) -> [ControlState; 4] {
    let deny = "stand-ins in the image, which is read-only";
    let seen = |control| match runtime.kind {
        Kind::Plain => state(
            control,
            Strength::Observed,
            "the guest, by seccomp notification",
            None,
        ),
        Kind::Gvisor | Kind::Kata => {
            let by = "started programs are not visible there";
            state(control, Strength::Absent, by, Some("use --runtime runc"))
        }
    };
    let nobody = "nothing prevents other programs from being started";
    let allow = match (runtime.kind, armor) {
        (Kind::Plain, Ok(())) => (Strength::Enforced, "an AppArmor profile", None),
        (Kind::Plain, Err(wanted)) => (
            Strength::Absent,
            nobody,
            Some(format!("{wanted}, or {NATIVE}")),
        ),
        (Kind::Gvisor | Kind::Kata, _) => (Strength::Absent, nobody, Some(NATIVE.to_owned())),
    };
    [
        state(Control::CommandDeny, Strength::Enforced, deny, None),
        state(Control::CommandAllow, allow.0, allow.1, allow.2.as_deref()),
        seen(Control::CommandArguments),
        seen(Control::CommandRecord),
    ]
}

fn mounts(runtime: &Runtime) -> ControlState {
    let control = Control::Mounts;
    match runtime.kind {
        Kind::Plain => state(
            control,
            Strength::Enforced,
            "the engine, checked by the guest",
            None,
        ),
        Kind::Gvisor | Kind::Kata => {
            let by = "checked before and after the engine mounts it";
            state(control, Strength::Observed, by, Some("use --runtime runc"))
        }
    }
}

fn disk(facts: &Facts, runtime: &Runtime, config: &SessionConfig) -> ControlState {
    if config.read_only_root {
        let by = match runtime.kind {
            Kind::Plain | Kind::Kata if facts.product.differences().tmpfs_ids => {
                "size-capped tmpfs"
            }
            _ => "size-capped tmpfs, which limits bytes but not the number of files",
        };
        state(Control::Disk, Strength::Enforced, by, None)
    } else {
        let by = "nothing limits the writable root of a container";
        state(
            Control::Disk,
            Strength::Absent,
            by,
            Some("keep the root read-only"),
        )
    }
}

fn syscalls(facts: &Facts, runtime: &Runtime) -> ControlState {
    let control = Control::Syscalls;
    match runtime.kind {
        Kind::Gvisor => state(
            control,
            Strength::Enforced,
            "gVisor's own kernel, and seccomp in it",
            None,
        ),
        Kind::Kata => state(control, Strength::Enforced, "a separate kernel", None),
        Kind::Plain if facts.has("seccomp") => state(control, Strength::Enforced, "seccomp", None),
        Kind::Plain => state(
            control,
            Strength::Absent,
            "the engine has no seccomp",
            Some("use an engine with seccomp"),
        ),
    }
}

/// How the guest confines programs, in addition to the container. `denies`: some programs are denied.
pub(crate) fn confine(runtime: &Runtime, local: bool, plan: &Plan, denies: bool) -> Confine {
    // There is no connector in a container.
    let folders = match plan.workspace().is_some() || !plan.mounts().is_empty() {
        true => Folders::NoSockets,
        false => Folders::None,
    };
    let asks = MediatedCalls {
        addresses: true,
        ..MediatedCalls::default()
    };
    // gVisor's own kernel has neither Landlock nor seccomp notifications.
    let plain = runtime.kind == Kind::Plain;
    Confine {
        seccomp: if runtime.kind == Kind::Gvisor {
            brig_profile::filter_on_gvisor(folders).to_vec()
        } else {
            brig_profile::filter(folders, true).to_vec()
        },
        // Only known for the kernel of this machine.
        landlock: if plain && local {
            brig_linux::landlock::abi()
        } else {
            0
        },
        writable: confined_to(plan),
        // One fewer than the guest has, which uses the last one itself.
        rlimits: vec![Rlimit {
            resource: NOFILE,
            value: mediate::HANDOFF.into(),
        }],
        watches_commands: plain && plan.watches_commands(),
        notify: match (plain, plan.watches_commands()) {
            (true, true) => notify::exec_filter(denies, &mediate::rules(asks)),
            (true, false) => mediate::filter(asks),
            (false, _) => Vec::new(),
        },
        ..Confine::default()
    }
}

/// What of `/dev` programs can write to. Not the directory: without root its owner may be their user, and nothing
/// limits it to the disk limit.
const DEVICES: [&str; 9] = [
    "/dev/shm",
    "/dev/pts",
    "/dev/ptmx",
    "/dev/tty",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// What Landlock lets programs write to.
fn confined_to(plan: &Plan) -> Vec<String> {
    let others = writable(plan).into_iter().filter(|path| path != "/dev");
    others.chain(DEVICES.map(str::to_owned)).collect()
}

/// Where programs can write.
pub(crate) fn writable(plan: &Plan) -> Vec<String> {
    // Not /proc: with `oom_score_adj` code could make the OOM killer choose the guest instead.
    let fixed = ["/workspace", "/tmp", "/dev"].map(str::to_owned);
    let mounts = plan.mounts().iter().filter(|mount| mount.writable);
    let mut paths: Vec<String> = fixed.into();
    paths.extend(mounts.map(|mount| mount.target.to_string_lossy().into_owned()));
    if !plan.read_only_root() {
        paths.push("/".into());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowlist_is_held_by_a_profile_or_not_at_all() {
        let allow = |kind, armor| {
            let runtime = Runtime {
                name: "x".into(),
                kind,
                without_cgroups: false,
            };
            let states = commands(&runtime, armor).into_iter();
            let mut states = states.filter(|state| state.control == Control::CommandAllow);
            states.next().expect("a state")
        };
        assert_eq!(allow(Kind::Plain, Ok(())).strength, Strength::Enforced);
        for (kind, armor) in [
            (Kind::Plain, Err("run as root")),
            (Kind::Gvisor, Ok(())),
            (Kind::Kata, Ok(())),
        ] {
            assert_eq!(allow(kind, armor).strength, Strength::Absent);
        }
        let fix = allow(Kind::Plain, Err("run as root")).fix;
        assert_eq!(
            fix.as_deref(),
            Some("run as root, or use the native backend")
        );
    }
}
