//! Which mechanism holds which limit.

use brig_sandbox::{Control, ControlState, Controls, Limits, Plan, Result, Strength};
use brig_wire::{Confine, Rlimit};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CpuSet;

use crate::cgroup::{Cgroups, Group};
use crate::host::Host;

pub const CGROUP_MEND: &str =
    "run Brig in a delegated control group: systemd-run --user --scope -p Delegate=yes brig …";

/// The guest and one keeper are not the program's.
const OWN_PROCESSES: u32 = 2;

/// How each limit of one instance is held.
#[derive(Clone, Debug)]
pub struct Means {
    pub cgroup_memory: bool,
    pub cgroup_pids: bool,
    pub cgroup_cpu: bool,
    /// The processors that the instance is bound to.
    pub processors: Option<Vec<usize>>,
}

impl Means {
    pub fn choose(host: &Host, limits: &Limits) -> Self {
        let cgroup_cpu = host.cgroups.cpu();
        let whole = limits.cpus.value.ceil() as usize;
        let processors = (!cgroup_cpu && whole < host.processors).then(|| pick(whole));
        Self {
            cgroup_memory: host.cgroups.memory(),
            cgroup_pids: host.cgroups.pids(),
            cgroup_cpu,
            processors,
        }
    }

    pub fn create_group(&self, cgroups: &Cgroups, limits: &Limits) -> Result<Option<Group>> {
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
    pub fn pin(&self, pid: u32) -> std::io::Result<()> {
        let Some(processors) = &self.processors else {
            return Ok(());
        };
        let mut set = CpuSet::new();
        for processor in processors {
            set.set(*processor);
        }
        let pid = rustix::process::Pid::from_raw(pid as i32);
        rustix::thread::sched_setaffinity(pid, &set)?;
        Ok(())
    }
}

/// Some of the processors that this process may use; another choice each time, so that sandboxes
/// spread out.
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

pub fn controls(host: &Host, limits: &Limits) -> Controls {
    let enforced = |control, by: &str| ControlState {
        control,
        strength: Strength::Enforced,
        by: by.into(),
        mend: None,
    };
    let version = host.cgroups.version();
    let mut states = vec![cpu(host, limits)];
    states.push(if host.cgroups.memory() {
        enforced(Control::Memory, &format!("{version} memory"))
    } else if !crate::tree::can_be_measured() {
        ControlState {
            control: Control::Memory,
            strength: Strength::Absent,
            by: "this kernel does not tell of a process's children".into(),
            mend: Some(CGROUP_MEND.into()),
        }
    } else {
        ControlState {
            control: Control::Memory,
            strength: Strength::Observed,
            by: "RLIMIT_DATA per process, and a watcher outside that sums up the tree".into(),
            mend: Some(CGROUP_MEND.into()),
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
            "timer outside, end of the process namespace",
        ),
        enforced(Control::OutputSize, "counted outside"),
        enforced(Control::NetworkOff, "network namespace without a way out"),
        enforced(
            Control::NetworkHosts,
            "a gateway outside that serves sockets in the network namespace",
        ),
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
                mend: Some(crate::host::SECCOMP_MEND.into()),
            }
        },
    ]);
    states.extend(commands(host));
    states.push(match host.landlock {
        0 => ControlState {
            control: Control::Filesystem,
            strength: Strength::Absent,
            by: "Landlock is absent".into(),
            mend: Some("boot with `landlock` in the lsm= list, or a kernel from 5.13 on".into()),
        },
        abi => enforced(Control::Filesystem, &format!("Landlock ABI {abi}")),
    });
    Controls(states)
}

/// Lists of commands. What a program is told, and what it asked for, is read while it could still
/// change it.
fn commands(host: &Host) -> Vec<ControlState> {
    let state = |control, strength, by: &str| ControlState {
        control,
        strength,
        by: by.into(),
        mend: None,
    };
    let notified = "seccomp notification to a party outside";
    let absent = |control, missing: &str, mend: &str| ControlState {
        mend: Some(mend.into()),
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
        let mend = "a kernel with Landlock and seccomp";
        absent(Control::CommandAllow, "Landlock or seccomp is absent", mend)
    });
    for control in [Control::CommandArguments, Control::CommandRecord] {
        states.push(if host.seccomp {
            state(control, Strength::Observed, notified)
        } else {
            absent(control, "seccomp is absent", crate::host::SECCOMP_MEND)
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
        mend: None,
    };
    let asked = limits.cpus.value;
    if host.cgroups.cpu() {
        enforced(format!("{} cpu", host.cgroups.version()))
    } else if asked >= host.processors as f64 {
        enforced("all processors of this machine".into())
    } else if asked.fract() == 0.0 {
        enforced("processor affinity that the sandbox can't change".into())
    } else {
        ControlState {
            control,
            strength: Strength::Observed,
            by: format!("affinity to {} processors, more than asked", asked.ceil()),
            mend: Some(format!("ask for whole processors, or {CGROUP_MEND}")),
        }
    }
}

pub fn confine(host: &Host, means: &Means, plan: &Plan) -> Confine {
    let host_folders = plan.workspace().is_some() || !plan.mounts().is_empty();
    // Only with a waiver does it come to a start without a filter.
    let seccomp = if host.seccomp {
        brig_profile::filter(host_folders, means.cgroup_memory)
    } else {
        &[]
    };
    Confine {
        seccomp: seccomp.to_vec(),
        rlimits: rlimits(means, plan.limits()),
        writable: writable(plan),
        landlock: host.landlock,
        ..Confine::default()
    }
}

fn writable(plan: &Plan) -> Vec<String> {
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
        "/proc",
    ];
    let mounts = plan.mounts().iter().filter(|mount| mount.writable);
    let mut paths: Vec<String> = fixed.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(mounts.map(|mount| mount.target.to_string_lossy().into_owned()));
    if !plan.read_only_root() {
        paths.push("/".into());
    }
    paths
}

/// Open files per process: all processes of a sandbox together get no more than an eighth of what
/// the machine has for everybody.
fn descriptors(processes: u32) -> u64 {
    let machine = std::fs::read_to_string("/proc/sys/fs/file-max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    (machine / 8 / u64::from(processes.max(1))).clamp(256, 4096)
}

fn rlimits(means: &Means, limits: &Limits) -> Vec<Rlimit> {
    // The kernel's numbers, the same on every machine that Brig runs on.
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
        // Not 0: that would still feed a crash to a helper of the host's where one is set up.
        (CORE, 1),
        (FSIZE, at_most(Resource::Fsize, limits.disk_bytes.value)),
        (
            NOFILE,
            at_most(Resource::Nofile, descriptors(limits.processes.value)),
        ),
        (SIGPENDING, at_most(Resource::Sigpending, 4096)),
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
    if !means.cgroup_memory {
        out.push((DATA, at_most(Resource::Data, limits.memory_bytes.value)));
    }
    out.into_iter()
        .map(|(resource, value)| Rlimit { resource, value })
        .collect()
}
