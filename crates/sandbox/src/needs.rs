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
        Control::NetworkHosts if config.network.is_on() => Some(Strength::Enforced),
        Control::NetworkHosts | Control::CommandDeny | Control::CommandAllow | Control::Tools => {
            config
                .needs
                .contains(&control)
                .then_some(Strength::Enforced)
        }
        // Seen as it happens, and nobody can do more than see it.
        Control::CommandArguments | Control::CommandRecord => {
            let observed = control == Control::CommandRecord && config.observe_commands;
            (observed || config.needs.contains(&control)).then_some(Strength::Observed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;
    use crate::config::MIB;

    fn controls(weak: &[(Control, Strength)]) -> Controls {
        let state = |control| ControlState {
            control,
            strength: weak
                .iter()
                .find(|(other, _)| *other == control)
                .map_or(Strength::Enforced, |(_, strength)| *strength),
            by: "test".into(),
            mend: Some(format!("mend {}", control.name())),
        };
        Controls(Control::ALL.into_iter().map(state).collect())
    }

    fn unmet_of(config: &SessionConfig, controls: Controls) -> Vec<Control> {
        match check(config, controls) {
            Ok(_) => Vec::new(),
            Err(Error::Unenforceable(unmet)) => unmet.iter().map(|u| u.control).collect(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_default_may_be_observed_but_not_absent() {
        let config = SessionConfig::default();
        let observed = controls(&[(Control::Memory, Strength::Observed)]);
        assert_eq!(unmet_of(&config, observed), []);
        let absent = controls(&[(Control::Memory, Strength::Absent)]);
        assert_eq!(unmet_of(&config, absent), [Control::Memory]);
    }

    #[test]
    fn what_was_asked_for_is_enforced_or_refused() {
        let mut config = SessionConfig::default();
        config.limits.memory_bytes = Limit::asked(64 * MIB);
        let observed = controls(&[(Control::Memory, Strength::Observed)]);
        assert_eq!(unmet_of(&config, observed.clone()), [Control::Memory]);
        let error = check(&config, observed.clone()).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "this backend cannot hold: memory (only observed, by test)"
        );
        assert_eq!(
            error.hint().as_deref(),
            Some("mend memory; or give it up knowingly: --waive memory")
        );
        config.waive.insert(Control::Memory);
        assert_eq!(unmet_of(&config, observed), []);
    }

    #[test]
    fn a_boundary_is_enforced_or_refused_even_unasked() {
        for control in [Control::NetworkOff, Control::Syscalls, Control::Filesystem] {
            let weak = controls(&[(control, Strength::Observed)]);
            assert_eq!(unmet_of(&SessionConfig::default(), weak), [control]);
        }
    }

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        let silent = Controls::default();
        let unmet = unmet_of(&SessionConfig::default(), silent);
        let unneeded = [
            Control::WallTime,
            Control::NetworkHosts,
            Control::CommandDeny,
            Control::CommandAllow,
            Control::CommandArguments,
            Control::CommandRecord,
            Control::Tools,
            Control::Mounts,
            Control::Checkpoint,
        ];
        let expected: Vec<Control> = Control::ALL
            .into_iter()
            .filter(|control| !unneeded.contains(control))
            .collect();
        assert_eq!(unmet, expected);
    }

    #[test]
    fn a_waiver_gives_up_only_what_it_names() {
        let mut config = SessionConfig::default();
        config.waive.insert(Control::Cpu);
        let weak = controls(&[
            (Control::Cpu, Strength::Absent),
            (Control::Processes, Strength::Absent),
        ]);
        assert_eq!(unmet_of(&config, weak), [Control::Processes]);
    }
}
