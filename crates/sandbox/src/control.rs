//! What can be enforced, and how strongly.

use serde::{Deserialize, Serialize};

/// One thing a policy or a config can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    Cpu,
    Memory,
    Processes,
    Disk,
    WallTime,
    OutputSize,
    NetworkOff,
    /// Only listed hosts can be reached.
    NetworkHosts,
    /// Listed programs can't be run.
    CommandDeny,
    /// Only listed programs can be run.
    CommandAllow,
    /// Programs are told apart by what they are told, which can only be seen.
    CommandArguments,
    /// Every program that is started is on record.
    CommandRecord,
    /// Only listed tools can be called.
    Tools,
    ReadOnlyRoot,
    Mounts,
    Checkpoint,
    Syscalls,
    Filesystem,
}

impl Control {
    pub const ALL: [Control; 18] = [
        Control::Cpu,
        Control::Memory,
        Control::Processes,
        Control::Disk,
        Control::WallTime,
        Control::OutputSize,
        Control::NetworkOff,
        Control::NetworkHosts,
        Control::CommandDeny,
        Control::CommandAllow,
        Control::CommandArguments,
        Control::CommandRecord,
        Control::Tools,
        Control::ReadOnlyRoot,
        Control::Mounts,
        Control::Checkpoint,
        Control::Syscalls,
        Control::Filesystem,
    ];

    /// The name used on the command line, in waivers and in results.
    pub fn name(self) -> &'static str {
        match self {
            Control::Cpu => "cpu",
            Control::Memory => "memory",
            Control::Processes => "processes",
            Control::Disk => "disk",
            Control::WallTime => "wall-time",
            Control::OutputSize => "output-size",
            Control::NetworkOff => "network-off",
            Control::NetworkHosts => "network-hosts",
            Control::CommandDeny => "command-deny",
            Control::CommandAllow => "command-allow",
            Control::CommandArguments => "command-arguments",
            Control::CommandRecord => "command-record",
            Control::Tools => "tools",
            Control::ReadOnlyRoot => "read-only-root",
            Control::Mounts => "mounts",
            Control::Checkpoint => "checkpoint",
            Control::Syscalls => "syscalls",
            Control::Filesystem => "filesystem",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }
}

/// How well a control holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// Not there at all.
    Absent,
    /// Seen and acted on, but it can be outrun or evaded.
    Observed,
    /// Held by the kernel, a hypervisor or a party outside the sandbox.
    Enforced,
}

/// How one control stands on a backend, here and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControlState {
    pub control: Control,
    pub strength: Strength,
    /// The mechanism, such as `cgroup v1 memory` or `RLIMIT_NPROC`.
    pub by: String,
    /// A command or a step that would make it stronger.
    pub mend: Option<String>,
}

/// Everything a backend can say about its controls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Controls(pub Vec<ControlState>);

impl Controls {
    pub fn get(&self, control: Control) -> Option<&ControlState> {
        self.0.iter().find(|state| state.control == control)
    }

    pub fn strength(&self, control: Control) -> Strength {
        self.get(control)
            .map_or(Strength::Absent, |state| state.strength)
    }
}
