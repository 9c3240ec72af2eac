//! Whether a backend enforces what a config needs. What it can't enforce is refused here, with the
//! step that would fix it, unless the operator waived it by name.

use crate::error::Unmet;
use crate::{Control, ControlState, Controls, Error, Result, SessionConfig, Strength};

/// What enforces each control under this config, and how strongly. Backends don't look at the parts
/// of the config that make a difference here.
pub(crate) fn stated(config: &SessionConfig, controls: Controls) -> Controls {
    let mut states = controls.0;
    if !states
        .iter()
        .any(|state| state.control == Control::WallTime)
    {
        states.push(ControlState {
            control: Control::WallTime,
            strength: Strength::Enforced,
            by: "a timer outside the sandbox".into(),
            fix: None,
        });
    }
    if !config.read_only_root {
        weaken_allowlist(&mut states);
    }
    let uncounted = uncounted(config);
    let disk = states
        .iter_mut()
        .find(|state| state.control == Control::Disk);
    if let Some(state) = disk.filter(|_| !uncounted.is_empty()) {
        let list = uncounted.join("`, `");
        state.by = format!(
            "{}; only the size of each file is limited in `{list}`, a host directory",
            state.by
        );
        state.strength = Strength::Absent;
        state.fix = Some("mount it read-only, or copy files with `brig session cp`".into());
    }
    Controls(states)
}

/// Host directories that can be written to. Their file system is not limited.
fn uncounted(config: &SessionConfig) -> Vec<String> {
    let workspace = config.workspace.as_ref().map(|_| "/workspace".to_owned());
    let mounts = config.mounts.iter().filter(|mount| mount.writable);
    let mounts = mounts.map(|mount| mount.target.display().to_string());
    workspace.into_iter().chain(mounts).collect()
}

pub(crate) fn check(config: &SessionConfig, backend: Controls) -> Result<Vec<ControlState>> {
    let unmet = backend.unmet(config);
    if unmet.is_empty() {
        Ok(stated(config, backend).0)
    } else {
        Err(Error::Unenforceable(unmet))
    }
}

impl Controls {
    /// What this config needs and these controls of a backend do not enforce. What is waived is not needed.
    pub fn unmet(&self, config: &SessionConfig) -> Vec<Unmet> {
        let controls = stated(config, self.clone());
        Control::ALL
            .into_iter()
            .filter(|control| !config.waive.contains(control))
            .filter_map(|control| {
                // The default limit does not cover directories that the caller made writable.
                let given = control == Control::Disk
                    && !config.limits.disk_bytes.asked
                    && !config.needs().contains(&control);
                let found = if given { self } else { &controls };
                unmet(control, need(config, control, self)?, found)
            })
            .collect()
    }
}

/// A list of files allows any program if the code can overwrite the files.
fn weaken_allowlist(states: &mut [ControlState]) {
    let allowlist = |state: &&mut ControlState| {
        state.control == Control::CommandAllow && state.strength == Strength::Enforced
    };
    if let Some(state) = states.iter_mut().find(allowlist) {
        state.strength = Strength::Observed;
        state.by = "a list of files that the code may overwrite in a writable root".into();
        state.fix = Some("keep the root read-only (no --writable-root)".into());
    }
}

/// The least strength that will do; `None` if the config does not need the control.
fn need(config: &SessionConfig, control: Control, backend: &Controls) -> Option<Strength> {
    let limits = &config.limits;
    let needed = config.needs().contains(&control);
    // A default, and what was asked for as best effort, may fall back to a weaker mechanism.
    let limit = |enforced| {
        Some(if enforced || needed {
            Strength::Enforced
        } else {
            Strength::Observed
        })
    };
    match control {
        Control::Cpu => limit(limits.cpus.must_be_enforced()),
        Control::Memory => limit(limits.memory_bytes.must_be_enforced()),
        Control::Processes => limit(limits.processes.must_be_enforced()),
        Control::Disk => limit(limits.disk_bytes.must_be_enforced()),
        Control::WallTime => limit(limits.timeout.must_be_enforced()),
        Control::OutputSize => limit(limits.output_bytes.must_be_enforced()),
        // A boundary that can be evaded is none.
        Control::NetworkOff | Control::Filesystem => Some(Strength::Enforced),
        Control::Syscalls => {
            // Code that makes no system calls needs no filter for them.
            let userland = backend.get(Control::LinuxUserland);
            let none = userland.is_some_and(|state| state.strength == Strength::Absent);
            (needed || !none).then_some(Strength::Enforced)
        }
        Control::ReadOnlyRoot => (needed || config.read_only_root).then_some(Strength::Enforced),
        Control::Mounts => {
            let wanted = !config.mounts.is_empty() || config.workspace.is_some();
            (needed || wanted).then_some(Strength::Enforced)
        }
        Control::NetworkHosts if config.network.is_on() => Some(Strength::Enforced),
        Control::NetworkHosts
        | Control::CommandDeny
        | Control::CommandAllow
        | Control::Tools
        | Control::Signals
        | Control::LinuxUserland => needed.then_some(Strength::Enforced),
        // No mechanism can do more than observe them.
        Control::CommandArguments | Control::CommandRecord => {
            let observed = control == Control::CommandRecord && config.observe_commands;
            (observed || needed).then_some(Strength::Observed)
        }
        // Otherwise checked where a session is saved.
        Control::Checkpoint => needed.then_some(Strength::Enforced),
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
        fix: state.and_then(|state| state.fix.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;
    use crate::config::{MIB, MountSpec};

    fn controls(weak: &[(Control, Strength)]) -> Controls {
        let state = |control| ControlState {
            control,
            strength: weak
                .iter()
                .find(|(other, _)| *other == control)
                .map_or(Strength::Enforced, |(_, strength)| *strength),
            by: "test".into(),
            fix: Some(format!("fix {}", control.name())),
        };
        Controls(Control::ALL.into_iter().map(state).collect())
    }

    #[test]
    fn an_allowlist_needs_a_root_that_stays_as_it_is() {
        let mut config = SessionConfig::default();
        config.require(Control::CommandAllow);
        assert_eq!(unmet_of(&config, controls(&[])), [], "the control");
        config.read_only_root = false;
        assert_eq!(unmet_of(&config, controls(&[])), [Control::CommandAllow]);
        config.waive.insert(Control::CommandAllow);
        let states = check(&config, controls(&[])).expect("waived");
        let allow = Controls(states);
        assert_eq!(allow.strength(Control::CommandAllow), Strength::Observed);
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
            "this backend cannot enforce: memory (only observed, by test)"
        );
        assert_eq!(
            error.hint().as_deref(),
            Some("fix memory; or accept the risk with --waive memory")
        );
        config.waive.insert(Control::Memory);
        assert_eq!(unmet_of(&config, observed), []);
    }

    #[test]
    fn best_effort_may_be_observed_but_not_absent_and_not_if_it_is_required() {
        let mut config = SessionConfig::default();
        config.limits.memory_bytes = Limit::best_effort(64 * MIB);
        let observed = controls(&[(Control::Memory, Strength::Observed)]);
        assert_eq!(unmet_of(&config, observed.clone()), []);
        let absent = controls(&[(Control::Memory, Strength::Absent)]);
        assert_eq!(unmet_of(&config, absent), [Control::Memory]);
        config.require(Control::Memory);
        assert_eq!(unmet_of(&config, observed.clone()), [Control::Memory]);
        config.limits.memory_bytes = Limit::default_of(64 * MIB);
        assert_eq!(unmet_of(&config, observed), [Control::Memory]);
        assert_eq!(unmet_of(&config, controls(&[])), [], "the control");
    }

    #[test]
    fn a_writable_directory_of_the_host_is_not_limited_and_not_said_to_be() {
        let mount = |writable| MountSpec {
            source: "/srv/data".into(),
            target: "/mnt/data".into(),
            writable,
        };
        let disk = |config: &SessionConfig| {
            let states = check(config, controls(&[]))?;
            let disk = states
                .into_iter()
                .find(|state| state.control == Control::Disk);
            Ok::<_, Error>(disk.expect("disk"))
        };
        let mut config = SessionConfig::default();
        config.limits.disk_bytes = Limit::asked(16 * MIB);
        config.mounts.push(mount(false));
        let disk_state = disk(&config).expect("a read-only mount takes nothing");
        assert_eq!(disk_state.strength, Strength::Enforced);

        let both = [
            SessionConfig {
                mounts: vec![mount(true)],
                ..config.clone()
            },
            SessionConfig {
                workspace: Some("/srv/work".into()),
                ..config
            },
        ];
        for (mut config, place) in both.into_iter().zip(["`/mnt/data`", "`/workspace`"]) {
            let refused = disk(&config).expect_err("asked for").to_string();
            assert!(
                refused.contains("disk (absent: ") && refused.contains(place),
                "{refused}"
            );
            config.waive.insert(Control::Disk);
            assert_eq!(disk(&config).expect("waived").strength, Strength::Absent);
            config.waive.clear();
            config.limits.disk_bytes = Limit::default_of(16 * MIB);
            let stated = disk(&config).expect("a default");
            assert_eq!(stated.strength, Strength::Absent, "and said to be so");
            let absent = controls(&[(Control::Disk, Strength::Absent)]);
            assert_eq!(unmet_of(&config, absent), [Control::Disk], "of the rest");
        }
    }

    #[test]
    fn a_boundary_is_enforced_or_refused_even_unasked() {
        for control in [Control::NetworkOff, Control::Syscalls, Control::Filesystem] {
            let weak = controls(&[(control, Strength::Observed)]);
            assert_eq!(unmet_of(&SessionConfig::default(), weak), [control]);
        }
    }

    #[test]
    fn only_a_linux_userland_needs_a_filter_for_system_calls() {
        let config = SessionConfig::default();
        let without = (Control::LinuxUserland, Strength::Absent);
        let filter = (Control::Syscalls, Strength::Absent);
        assert_eq!(unmet_of(&config, controls(&[without, filter])), []);
        assert_eq!(unmet_of(&config, controls(&[filter])), [Control::Syscalls]);
        let all = controls(&[filter]).0.into_iter();
        let silent = all.filter(|state| state.control != Control::LinuxUserland);
        let silent = Controls(silent.collect());
        assert_eq!(unmet_of(&config, silent), [Control::Syscalls], "not said");
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
            Control::Signals,
            Control::LinuxUserland,
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
