//! Which mechanism enforces which limit.

use brig_linux::mediate::{self, MediatedCalls};
use brig_profile::Folders;
use brig_sandbox::{Control, ControlState, Controls, Limits, Plan, Result, Strength};
use brig_wire::{Confine, HostDirectory, Mediation, Rlimit};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CpuSet;

use crate::cgroup::{Cgroups, Group};
use crate::host::Host;
use crate::interpreters::FoundInterpreters;
use crate::root::{VAR_TMP, has_own_var_tmp};

pub(crate) const CGROUP_FIX: &str =
    "run Brig in a delegated control group: systemd-run --user --scope -p Delegate=yes brig …";

/// The guest and one keeper.
const OWN_PROCESSES: u32 = 2;

/// The mechanism for each limit of one instance.
#[derive(Clone, Debug)]
pub(crate) struct LimitMechanisms {
    pub cgroup_memory: bool,
    pub cgroup_pids: bool,
    pub cgroup_cpu: bool,
    /// The processors that the instance is bound to.
    pub processors: Option<Vec<usize>>,
}

impl LimitMechanisms {
    pub(crate) fn choose(host: &Host, limits: &Limits) -> Self {
        let cgroup_cpu = host.cgroups.cpu();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number of CPUs"
        )]
        let whole = limits.cpus.value.ceil() as usize;
        let processors = (!cgroup_cpu && whole < host.processors).then(|| pick(whole));
        Self {
            cgroup_memory: host.cgroups.memory(),
            cgroup_pids: host.cgroups.pids(),
            cgroup_cpu,
            processors,
        }
    }

    pub(crate) fn create_group(&self, cgroups: &Cgroups, limits: &Limits) -> Result<Option<Group>> {
        if !(self.cgroup_memory || self.cgroup_pids || self.cgroup_cpu) {
            return Ok(None);
        }
        let processes = limits.processes.value.saturating_add(OWN_PROCESSES);
        Group::create(
            cgroups,
            limits.memory_bytes.value,
            processes,
            limits.cpus.value,
        )
        .map(Some)
    }

    /// Binds a process, and so all its children, to the chosen processors.
    pub(crate) fn pin(&self, pid: u32) -> std::io::Result<()> {
        let Some(processors) = &self.processors else {
            return Ok(());
        };
        let mut set = CpuSet::new();
        for processor in processors {
            set.set(*processor);
        }
        let pid = rustix::process::Pid::from_raw(pid.cast_signed());
        rustix::thread::sched_setaffinity(pid, &set)?;
        Ok(())
    }
}

/// Some of the processors that this process may use. Another choice each time, so that sandboxes are spread.
fn pick(count: usize) -> Vec<usize> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let mut seed = [0; 4];
    let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
    let start = u32::from_le_bytes(seed) as usize;
    (0..count.max(1))
        .map(|index| usable[(start + index) % usable.len()])
        .collect()
}

pub(crate) fn controls(host: &Host, limits: &Limits) -> Controls {
    let enforced = |control, by: &str| ControlState {
        control,
        strength: Strength::Enforced,
        by: by.into(),
        fix: None,
    };
    let version = host.cgroups.version();
    let mut states = vec![cpu(host, limits)];
    states.push(if host.cgroups.memory() {
        enforced(Control::Memory, &format!("{version} memory"))
    } else if !crate::tree::can_be_measured() {
        ControlState {
            control: Control::Memory,
            strength: Strength::Absent,
            by: "this kernel does not list the children of a process".into(),
            fix: Some(CGROUP_FIX.into()),
        }
    } else {
        ControlState {
            control: Control::Memory,
            strength: Strength::Observed,
            by: "RLIMIT_DATA per process, and an outside watcher that adds up the process tree"
                .into(),
            fix: Some(CGROUP_FIX.into()),
        }
    });
    states.push(if host.cgroups.pids() {
        enforced(Control::Processes, &format!("{version} pids"))
    } else {
        enforced(Control::Processes, "RLIMIT_NPROC in a fresh user namespace")
    });
    states.extend([
        enforced(Control::Disk, "size-capped tmpfs"),
        enforced(
            Control::WallTime,
            "timer outside the sandbox, kill of the PID namespace",
        ),
        enforced(Control::OutputSize, "counted outside the sandbox"),
        enforced(
            Control::NetworkOff,
            "network namespace without a route to the outside",
        ),
        enforced(
            Control::NetworkHosts,
            "a gateway outside the sandbox that serves sockets in the network namespace",
        ),
        enforced(Control::Tools, brig_guest_host::tools::GATE),
        enforced(Control::ReadOnlyRoot, "read-only mounts"),
        enforced(Control::Mounts, "mount namespace"),
        enforced(
            Control::Checkpoint,
            if host.overlay_layers {
                "overlay layers with digests"
            } else {
                "copied layers with digests"
            },
        ),
        if host.seccomp {
            enforced(Control::Syscalls, "seccomp")
        } else {
            ControlState {
                control: Control::Syscalls,
                strength: Strength::Absent,
                by: "seccomp is absent".into(),
                fix: Some(crate::host::SECCOMP_FIX.into()),
            }
        },
    ]);
    states.extend(commands(host));
    states.push(match host.landlock {
        0 => ControlState {
            control: Control::Filesystem,
            strength: Strength::Absent,
            by: "Landlock is absent".into(),
            fix: Some("boot with `landlock` in the lsm= list, or use kernel 5.13 or newer".into()),
        },
        abi => enforced(Control::Filesystem, &format!("Landlock ABI {abi}")),
    });
    states.extend([
        enforced(Control::Signals, "the guest, which passes them on"),
        enforced(Control::LinuxUserland, "this machine's programs"),
    ]);
    Controls(states)
}

/// Command lists. Arguments are only observed, because a program can change them while they are read.
fn commands(host: &Host) -> Vec<ControlState> {
    let state = |control, strength, by: &str| ControlState {
        control,
        strength,
        by: by.into(),
        fix: None,
    };
    let notified = "seccomp notification to a process outside the sandbox";
    let absent = |control, missing: &str, fix: &str| ControlState {
        fix: Some(fix.into()),
        ..state(control, Strength::Absent, missing)
    };
    let mut states = vec![state(
        Control::CommandDeny,
        Strength::Enforced,
        "read-only stand-ins over the denied files",
    )];
    states.push(if host.landlock > 0 && host.seccomp {
        state(
            Control::CommandAllow,
            Strength::Enforced,
            "Landlock rights to execute",
        )
    } else {
        let fix = "use a kernel with Landlock and seccomp";
        absent(Control::CommandAllow, "Landlock or seccomp is absent", fix)
    });
    for control in [Control::CommandArguments, Control::CommandRecord] {
        states.push(if host.seccomp {
            state(control, Strength::Observed, notified)
        } else {
            absent(control, "seccomp is absent", crate::host::SECCOMP_FIX)
        });
    }
    states
}

fn cpu(host: &Host, limits: &Limits) -> ControlState {
    let control = Control::Cpu;
    let enforced = |by: String| ControlState {
        control,
        strength: Strength::Enforced,
        by,
        fix: None,
    };
    let asked = limits.cpus.value;
    if host.cgroups.cpu() {
        enforced(format!("{} cpu", host.cgroups.version()))
    } else if asked >= host.processors as f64 {
        enforced("all CPUs of this machine".into())
    } else if asked.fract() == 0.0 {
        enforced("CPU affinity that the sandbox cannot change".into())
    } else {
        ControlState {
            control,
            strength: Strength::Observed,
            by: format!(
                "affinity to whole CPUs, {} instead of {asked}",
                asked.ceil()
            ),
            fix: Some(format!("request whole CPUs, or {CGROUP_FIX}")),
        }
    }
}

pub(crate) fn confine(
    host: &Host,
    mechanisms: &LimitMechanisms,
    plan: &Plan,
    found: &FoundInterpreters,
) -> Confine {
    let folders = folders(host, plan, found);
    // Without seccomp, an execution starts only with a waiver.
    let (seccomp, notify, mediation) = if host.seccomp {
        (
            brig_profile::filter(folders, mechanisms.cgroup_memory),
            mediate::filter(mediated_calls(folders)),
            Mediation::Inside,
        )
    } else {
        (&[][..], Vec::new(), Mediation::None)
    };
    Confine {
        seccomp: seccomp.to_vec(),
        rlimits: rlimits(mechanisms, plan.limits()),
        writable: writable(plan, found),
        landlock: host.landlock,
        mediation,
        notify,
        host_directories: host_directories(plan),
        ..Confine::default()
    }
}

/// Which calls the connector makes.
pub(crate) fn mediated_calls(folders: Folders) -> MediatedCalls {
    MediatedCalls {
        files: true,
        connects: folders == Folders::Mediated,
        ..MediatedCalls::default()
    }
}

/// Which host directories are mounted, in addition to the system's.
pub(crate) fn folders(host: &Host, plan: &Plan, found: &FoundInterpreters) -> Folders {
    let any =
        plan.workspace().is_some() || !plan.mounts().is_empty() || !found.folders().is_empty();
    match any {
        false => Folders::None,
        // Nothing else keeps programs from creating sockets there.
        true if host.landlock == 0 || !host.seccomp => Folders::NoSockets,
        true => Folders::Mediated,
    }
}

fn host_directories(plan: &Plan) -> Vec<HostDirectory> {
    let mounts = plan.workspace().into_iter().chain(plan.mounts());
    mounts
        .map(|mount| HostDirectory {
            path: mount.target.to_string_lossy().into_owned(),
            writable: mount.writable,
        })
        .collect()
}

pub(crate) fn writable(plan: &Plan, found: &FoundInterpreters) -> Vec<String> {
    let fixed = [
        "/workspace",
        "/tmp",
        "/dev/shm",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/pts",
    ];
    let mounts = plan.mounts().iter().filter(|mount| mount.writable);
    let mut paths: Vec<String> = fixed.iter().map(|path| (*path).to_owned()).collect();
    if has_own_var_tmp(plan, found) {
        paths.push(VAR_TMP.into());
    }
    paths.extend(mounts.map(|mount| mount.target.to_string_lossy().into_owned()));
    if !plan.read_only_root() {
        paths.push("/".into());
    }
    paths
}

/// Open files per process, so that all processes of a sandbox together can open at most an eighth of the
/// machine's limit.
fn descriptors(processes: u32) -> u64 {
    let machine = std::fs::read_to_string("/proc/sys/fs/file-max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    (machine / 8 / u64::from(processes.max(1))).clamp(256, 4096)
}

fn rlimits(mechanisms: &LimitMechanisms, limits: &Limits) -> Vec<Rlimit> {
    // The kernel's numbers, which are the same on all supported architectures.
    const FSIZE: u32 = 1;
    const DATA: u32 = 2;
    const CORE: u32 = 4;
    const NPROC: u32 = 6;
    const NOFILE: u32 = 7;
    const SIGPENDING: u32 = 11;
    const MSGQUEUE: u32 = 12;
    const NICE: u32 = 13;
    const RTPRIO: u32 = 14;
    let at_most = |resource: Resource, value: u64| {
        getrlimit(resource)
            .maximum
            .map_or(value, |maximum| maximum.min(value))
    };
    let mut out = vec![
        // Not 0, unless the caller has 0: with a pipe in core_pattern, the kernel would still start the host's
        // helper.
        (CORE, at_most(Resource::Core, 1)),
        (FSIZE, at_most(Resource::Fsize, limits.disk_bytes.value)),
        (
            NOFILE,
            at_most(Resource::Nofile, descriptors(limits.processes.value)),
        ),
        (SIGPENDING, at_most(Resource::Sigpending, 512)),
        (MSGQUEUE, at_most(Resource::Msgqueue, 819_200)),
        (NICE, 0),
        (RTPRIO, 0),
        (
            NPROC,
            at_most(
                Resource::Nproc,
                u64::from(limits.processes.value + OWN_PROCESSES),
            ),
        ),
    ];
    if !mechanisms.cgroup_memory {
        out.push((DATA, at_most(Resource::Data, limits.memory_bytes.value)));
    }
    out.into_iter()
        .map(|(resource, value)| Rlimit { resource, value })
        .collect()
}
