//! What each runtime holds of a plan, and by what.

use brig_sandbox::{Control, ControlState, Controls, Plan, SessionConfig, Strength};
use brig_wire::Confine;

use crate::engine::Facts;
use crate::runtime::{Kind, Runtime};

/// The guest and one keeper are not the program's.
pub const OWN_PROCESSES: u32 = 2;

const WATCHED: &str = "the guest, which looks at what its kernel counts";
const GVISOR_CGROUPS: &str =
    "leave --ignore-cgroups out of the runtime's arguments, or use --runtime runc";
const NATIVE: &str = "use the native backend";

/// How one control stands.
fn state(control: Control, strength: Strength, by: &str, mend: Option<&str>) -> ControlState {
    ControlState {
        control,
        strength,
        by: by.into(),
        mend: mend.map(str::to_owned),
    }
}

/// `armor`: whether profiles can be loaded, or what that would take.
pub fn controls(
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
        disk(runtime, config),
        enforced(Control::WallTime, "timer outside, end of the process tree"),
        enforced(Control::OutputSize, "counted outside"),
        enforced(Control::NetworkOff, "a network namespace without a way out"),
        enforced(
            Control::NetworkHosts,
            "a gateway outside that serves what the guest relays",
        ),
        enforced(Control::Checkpoint, "copied layers with digests"),
        enforced(Control::ReadOnlyRoot, "a read-only root of the container"),
        mounts(runtime),
        enforced(Control::Filesystem, "a root of its own"),
        syscalls(facts, runtime),
    ];
    states.extend(commands(runtime, armor));
    Controls(states)
}

/// What the engine puts into a control group, where the runtime has one.
fn cgroup(facts: &Facts, runtime: &Runtime, control: Control, offered: bool) -> ControlState {
    if runtime.without_cgroups {
        return match control {
            Control::Cpu => state(
                control,
                Strength::Absent,
                "the runtime was told to leave control groups alone",
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
        Kind::Gvisor | Kind::Plain => format!("cgroup v{} of the engine", facts.cgroup),
    };
    state(control, Strength::Enforced, &by, None)
}

/// Stand-ins are in the image, and so in every runtime. What is started is seen by the guest, where
/// the kernel is one that can be asked.
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
            let by = "nothing sees what is started there";
            state(control, Strength::Absent, by, Some("use --runtime runc"))
        }
    };
    let nobody = "nothing keeps other programs from being started";
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
            let by = "looked at before and after the engine mounts it";
            state(control, Strength::Observed, by, Some("use --runtime runc"))
        }
    }
}

fn disk(runtime: &Runtime, config: &SessionConfig) -> ControlState {
    if config.read_only_root {
        let by = match runtime.kind {
            Kind::Gvisor => "size-capped tmpfs, which counts bytes and no names",
            Kind::Plain | Kind::Kata => "size-capped tmpfs",
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
        Kind::Kata => state(control, Strength::Enforced, "a kernel of its own", None),
        Kind::Plain if facts.has("seccomp") => state(control, Strength::Enforced, "seccomp", None),
        Kind::Plain => state(
            control,
            Strength::Absent,
            "the engine has no seccomp",
            Some("an engine with seccomp"),
        ),
    }
}

/// What the guest holds every program by, beside the container.
pub fn confine(runtime: &Runtime, local: bool, plan: &Plan) -> Confine {
    let host_folders = plan.workspace().is_some() || !plan.mounts().is_empty();
    // gVisor has a kernel of its own, which knows neither Landlock nor notifications.
    let plain = runtime.kind == Kind::Plain;
    Confine {
        seccomp: if runtime.kind == Kind::Gvisor {
            brig_profile::filter_on_gvisor(host_folders).to_vec()
        } else {
            brig_profile::filter(host_folders, true).to_vec()
        },
        // Only of the kernel that runs this is it known.
        landlock: if plain && local {
            brig_linux::landlock::abi()
        } else {
            0
        },
        writable: writable(plan),
        notify: if plain && plan.watches_commands() {
            brig_linux::notify::exec_filter(false)
        } else {
            Vec::new()
        },
        ..Confine::default()
    }
}

/// Where programs can write.
pub fn writable(plan: &Plan) -> Vec<String> {
    let fixed = ["/workspace", "/tmp", "/dev", "/proc"].map(str::to_owned);
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
            (Kind::Plain, Err("be root")),
            (Kind::Gvisor, Ok(())),
            (Kind::Kata, Ok(())),
        ] {
            assert_eq!(allow(kind, armor).strength, Strength::Absent);
        }
        let mend = allow(Kind::Plain, Err("be root")).mend;
        assert_eq!(mend.as_deref(), Some("be root, or use the native backend"));
    }
}
