//! What the service and the script in the sandbox enforce.

use brig_sandbox::{Control, ControlState, Controls, Limits, Strength};

use crate::size;

/// For these limits.
pub(crate) fn controls(limits: &Limits) -> Controls {
    let fit = size::fit(limits);
    let state = |control| {
        let (strength, by) = describe(control);
        let mut state = ControlState {
            control,
            strength,
            by: by.into(),
            fix: None,
        };
        let held = match control {
            Control::Cpu => fit.cpu,
            Control::Memory => fit.memory,
            _ => return state,
        };
        if held {
            state.by = format!("a virtual machine with {}", fit.size.text());
        } else {
            state.strength = Strength::Absent;
            state.by = format!("the smallest virtual machine has {}", fit.size.text());
            state.fix = Some("ask for at least 0.25 CPUs and 512 MiB".into());
        }
        state
    };
    Controls(Control::ALL.into_iter().map(state).collect())
}

fn describe(control: Control) -> (Strength, &'static str) {
    use Strength::{Absent, Enforced, Observed};
    match control {
        Control::Cpu | Control::Memory => (Enforced, ""),
        Control::Processes => (Enforced, "RLIMIT_NPROC of the sandbox's user"),
        Control::Disk => (
            Observed,
            "RLIMIT_FSIZE, and a look at /workspace and /tmp every second",
        ),
        Control::WallTime => (
            Enforced,
            "a timer outside the sandbox, which deletes one that ignores it",
        ),
        Control::OutputSize => (Enforced, "counted outside the sandbox"),
        Control::NetworkOff | Control::NetworkHosts => (
            Enforced,
            "the egress proxy of the service, with its policy read back; whether DNS is covered is not known",
        ),
        Control::CommandDeny
        | Control::CommandAllow
        | Control::CommandArguments
        | Control::CommandRecord => (Absent, "the service does not watch programs"),
        Control::Tools => (
            Absent,
            "code in the service can't reach tools of this machine",
        ),
        Control::ReadOnlyRoot => (
            Enforced,
            "permissions: programs are an ordinary user without a way to become another",
        ),
        Control::Mounts => (Absent, "the service can't show directories of this machine"),
        Control::Checkpoint => (Enforced, "snapshots of the service"),
        Control::Syscalls => (Enforced, "a kernel of its own, in a virtual machine"),
        Control::Filesystem => (Enforced, "a disk of its own, in a virtual machine"),
        Control::Signals => (Enforced, "kill in the sandbox"),
        Control::LinuxUserland => (Enforced, "the disk image"),
        // A control that is newer than this backend.
        _ => (Absent, "this backend does not support it"),
    }
}

#[cfg(test)]
mod tests {
    use brig_sandbox::Limit;
    use brig_sandbox::config::MIB;

    use super::*;

    #[test]
    fn a_limit_below_every_size_is_not_claimed() {
        let usual = controls(&Limits::default());
        assert_eq!(usual.strength(Control::Memory), Strength::Enforced);
        let small = Limits {
            memory_bytes: Limit::asked(128 * MIB),
            ..Limits::default()
        };
        let small = controls(&small);
        assert_eq!(small.strength(Control::Memory), Strength::Absent);
        assert_eq!(small.strength(Control::Cpu), Strength::Enforced);
        assert_eq!(small.strength(Control::CommandDeny), Strength::Absent);
        assert_eq!(small.strength(Control::Disk), Strength::Observed);
    }

    #[test]
    fn the_guide_tells_what_is_not_enforced() {
        let guide = include_str!("../../../docs/guides/azure.md");
        let all = controls(&Limits::default());
        for state in all
            .0
            .iter()
            .filter(|state| state.strength != Strength::Enforced)
        {
            let strength = format!("{:?}", state.strength).to_lowercase();
            let row = format!(
                "| `{}` | {strength} | {} |\n",
                state.control.name(),
                state.by
            );
            assert!(guide.contains(&row), "{row}");
        }
    }
}
