//! Whether a backend holds what a config needs. What can't be held is refused here, with the step
//! that would mend it, unless the operator gave it up by name.

use crate::error::Unmet;
use crate::{Control, ControlState, Controls, Error, Result, SessionConfig, Strength};

pub(crate) fn check(config: &SessionConfig, controls: Controls) -> Result<Vec<ControlState>> {
    let mut states = controls.0;
    if !states
        .iter()
        .any(|state| state.control == Control::WallTime)
    {
        states.push(ControlState {
            control: Control::WallTime,
            strength: Strength::Enforced,
            by: "a timer outside the sandbox".into(),
            mend: None,
        });
    }
    let controls = Controls(states);
    let unmet: Vec<Unmet> = Control::ALL
        .into_iter()
        .filter(|control| !config.waive.contains(control))
        .filter_map(|control| unmet(control, need(config, control)?, &controls))
        .collect();
    if unmet.is_empty() {
        Ok(controls.0)
    } else {
        Err(Error::Unenforceable(unmet))
    }
}

/// The least strength that will do; nothing if the config does not need the control.
fn need(config: &SessionConfig, control: Control) -> Option<Strength> {
    let limits = &config.limits;
    // A default may fall back to a weaker means; what was asked for may not.
    let limit = |asked| {
        Some(if asked {
            Strength::Enforced
        } else {
            Strength::Observed
        })
    };
    match control {
        Control::Cpu => limit(limits.cpus.asked),
        Control::Memory => limit(limits.memory_bytes.asked),
        Control::Processes => limit(limits.processes.asked),
        Control::Disk => limit(limits.disk_bytes.asked),
        Control::WallTime => limit(limits.timeout.asked),
        Control::OutputSize => limit(limits.output_bytes.asked),
        // A boundary that can be evaded is none.
        Control::NetworkOff | Control::Syscalls | Control::Filesystem => Some(Strength::Enforced),
        Control::ReadOnlyRoot => config.read_only_root.then_some(Strength::Enforced),
        Control::Mounts => {
            let wanted = !config.mounts.is_empty() || config.workspace.is_some();
            wanted.then_some(Strength::Enforced)
        }
        // Needed by those who save, and asked for there.
        Control::Checkpoint => None,
    }
}

pub(crate) fn unmet(control: Control, need: Strength, controls: &Controls) -> Option<Unmet> {
    let state = controls.get(control);
    let strength = controls.strength(control);
    if strength >= need {
        return None;
    }
    let problem = match (strength, state) {
        (Strength::Observed, Some(state)) => format!("only observed, by {}", state.by),
        (_, Some(state)) if !state.by.is_empty() => format!("absent: {}", state.by),
        _ => "absent".into(),
    };
    Some(Unmet {
        control,
        problem,
        mend: state.and_then(|state| state.mend.clone()),
    })
}
