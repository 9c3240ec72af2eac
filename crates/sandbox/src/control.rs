//! What can be enforced, and how strongly.

use serde::{Deserialize, Serialize};

/// One thing a policy or a config can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Control {
    /// The CPU limit.
    Cpu,
    /// The memory limit.
    Memory,
    /// The limit of processes.
    Processes,
    /// The disk limit.
    Disk,
    /// The time limit.
    WallTime,
    /// The limit of captured output.
    OutputSize,
    /// No network.
    NetworkOff,
    /// Only listed hosts can be reached.
    NetworkHosts,
    /// Listed programs can't be run.
    CommandDeny,
    /// Only listed programs can be run.
    CommandAllow,
    /// Commands are told apart by their arguments, which can only be observed.
    CommandArguments,
    /// Every start of a program is recorded.
    CommandRecord,
    /// Only listed tools can be called.
    Tools,
    /// System directories can't be written.
    ReadOnlyRoot,
    /// Host directories can be shown.
    Mounts,
    /// Files can be saved and restored.
    Checkpoint,
    /// System calls are filtered.
    Syscalls,
    /// Access to files is restricted by the kernel.
    Filesystem,
    /// Signals reach a running program.
    Signals,
    /// Ordinary Linux programs run. A backend that declares this absent needs no `Syscalls`.
    LinuxUserland,
}

impl Control {
    /// All controls.
    pub const ALL: [Control; 20] = [
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
        Control::Signals,
        Control::LinuxUserland,
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
            Control::Signals => "signals",
            Control::LinuxUserland => "linux-userland",
        }
    }

    /// What it means for a user, whatever enforces it.
    pub fn meaning(self) -> &'static str {
        match self {
            Control::Cpu => "code uses no more CPU time than the limit",
            Control::Memory => "code uses no more memory than the limit",
            Control::Processes => "no more processes and threads than the limit run at once",
            Control::Disk => "code writes no more than the limit",
            Control::WallTime => "an execution ends when its time is over",
            Control::OutputSize => "no more output than the limit is kept",
            Control::NetworkOff => "code reaches no host, unless rules allow it",
            Control::NetworkHosts => "code reaches only the hosts that rules allow",
            Control::CommandDeny => "programs on a denylist cannot be started",
            Control::CommandAllow => "only programs on an allowlist can be started",
            Control::CommandArguments => "rules can tell commands apart by their arguments",
            Control::CommandRecord => "every start of a program is recorded",
            Control::Tools => "only tools on an allowlist can be called",
            Control::ReadOnlyRoot => "code cannot change the files of the system it runs on",
            Control::Mounts => "host directories can be shown to code, and only these",
            Control::Checkpoint => "files can be saved, and restored unchanged",
            Control::Syscalls => "code can use only a small part of the kernel, or none of it",
            Control::Filesystem => "code reaches only the files that it was given",
            Control::Signals => "signals can be sent to a running program",
            Control::LinuxUserland => "ordinary Linux programs run, and can start others",
        }
    }

    /// The control of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }
}

/// How well a control works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// It does not exist here.
    Absent,
    /// It is watched and acted on, but can be evaded.
    Observed,
    /// By the kernel, a hypervisor or a process outside the sandbox.
    Enforced,
}

/// One control of a backend, here and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlState {
    /// The control.
    pub control: Control,
    /// How well it works.
    pub strength: Strength,
    /// The mechanism, such as `cgroup v1 memory` or `RLIMIT_NPROC`.
    pub by: String,
    /// A command or a step that would make it stronger.
    pub fix: Option<String>,
}

/// All controls of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Controls(pub Vec<ControlState>);

impl Controls {
    /// The state of a control, if it is known.
    pub fn get(&self, control: Control) -> Option<&ControlState> {
        self.0.iter().find(|state| state.control == control)
    }

    /// How well a control works; absent if nothing is known.
    pub fn strength(&self, control: Control) -> Strength {
        self.get(control)
            .map_or(Strength::Absent, |state| state.strength)
    }
}

#[cfg(test)]
mod tests {
    use super::Control;

    #[test]
    fn the_documentation_has_every_meaning() {
        let page = include_str!("../../../docs/concepts/plan-and-controls.md");
        for control in Control::ALL {
            let row = format!("| `{}` | {} |\n", control.name(), control.meaning());
            assert!(page.contains(&row), "{row}");
        }
    }
}
