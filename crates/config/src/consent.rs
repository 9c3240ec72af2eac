//! What an agent file or its policy asks for that only the user may decide: host directories, variables of
//! the user's environment, tools that run on the host, another backend, more resources, missing controls. The
//! user agrees by trusting the file as it is, or gives it with flags.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_policy::{Document, Given, Limits};

use crate::defaults::SetLimits;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::resolve::Run;
use crate::source::Source;
use crate::store::Store;

/// What the user decides for one run.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// Places in the sandbox where a flag mounts something.
    pub targets: &'a [PathBuf],
    /// Names of variables that a flag sets.
    pub variables: &'a [String],
    /// Limits that apply without the agent file.
    pub limits: &'a SetLimits,
    /// Limits that a flag sets.
    pub flags: &'a SetLimits,
    /// The backend, if a flag or the user's configuration names one; otherwise the default.
    pub backend: (BackendSetBy, &'a str),
}

/// Who names the backend that applies without the agent file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendSetBy {
    /// A flag or the user's configuration: the agent file has no say.
    User,
    /// Nobody.
    Default,
}

impl Run {
    /// What the policy of the agent file mounts, gives up, opens and raises, for the user to see.
    pub fn asked_by_policy(&self) -> Vec<String> {
        let policy = self.policy.iter();
        let mounts = policy.clone().flat_map(|policy| shown_by(policy));
        let mounts = mounts.map(|mount| format!("see {mount}"));
        let waived = policy.clone().flat_map(|policy| policy.waive());
        let waived = waived.map(|control| format!("run without the control `{}`", control.value));
        let rules = policy.clone().flat_map(|policy| policy.network_allowlist());
        let opened = rules.filter(|rule| rule.value.opens().is_some());
        let opened = opened.map(|rule| format!("reach `{}`", rule.value));
        let limited = policy.filter(|policy| !SetLimits::of(policy.limits()).is_empty());
        let limited = limited.map(|_| "have the limits of its policy, higher ones too".to_owned());
        mounts.chain(waived).chain(opened).chain(limited).collect()
    }

    /// What the tools of the agent file start and reach, for the user to see.
    pub fn asked_by_tools(&self) -> impl Iterator<Item = String> {
        self.agent.tools.asked()
    }

    /// The mounts of the agent file, from the directory that it is in.
    pub fn mounts(&self) -> impl Iterator<Item = Mount> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        self.agent.mounts.iter().map(move |mount| {
            let source = directory.join(&mount.source);
            Mount {
                source: std::path::absolute(&source).unwrap_or(source),
                ..mount.clone()
            }
        })
    }

    /// Refuses what the agent file asks for beyond what the user decides for this run, unless the user
    /// trusts the file as it is.
    pub fn check_consent(
        &self,
        source: &dyn Source,
        store: &Store,
        decided: Decided<'_>,
    ) -> Result<()> {
        let mut wants = Vec::new();
        for mount in self.mounts() {
            if !decided.targets.contains(&mount.target) {
                wants.push(format!("mounts {mount}"));
            }
        }
        for name in &self.agent.secrets {
            if !decided.variables.contains(name) {
                wants.push(format!("takes `{name}` from your environment"));
            }
        }
        wants.extend(self.agent.tools.asked());
        if let (BackendSetBy::Default, default) = decided.backend
            && let Some(backend) = self.agent.backend.as_deref()
            && backend != default
        {
            wants.push(format!("chooses the backend `{backend}`"));
        }
        let mut raised = self.agent.limits.raised(decided.limits, decided.flags);
        if let Some(policy) = &self.policy {
            wants.extend(shown_by(policy).map(|mount| format!("mounts {mount}")));
            let waived = policy.waive().iter();
            wants.extend(waived.map(|control| format!("gives up the control `{}`", control.value)));
            let limits = SetLimits::of(policy.limits());
            raised.extend(limits.raised(decided.limits, decided.flags));
        }
        raised.dedup();
        wants.extend(
            raised
                .iter()
                .map(|name| format!("raises the limit `{name}`")),
        );
        if wants.is_empty() || store.trusts(source, &self.identity)? {
            return Ok(());
        }
        Err(Error::Untrusted {
            file: self.path.display().to_string(),
            wants: wants.join(" and "),
        })
    }
}

/// Host directories of a policy that are elsewhere if it is used in another directory. Consent is to the
/// directory that the user was shown.
pub(crate) fn relative_to_here(policy: &Document) -> impl Iterator<Item = PathBuf> {
    let mounts = policy.mounts();
    let all = [&mounts.input_dir, &mounts.output_dir]
        .into_iter()
        .flatten();
    let all = all.map(|given| Path::new(&given.value));
    let relative = all.filter(|source| source.is_relative());
    relative.map(|source| std::path::absolute(source).unwrap_or_else(|_| source.to_owned()))
}

/// What a policy mounts.
fn shown_by(policy: &Document) -> impl Iterator<Item = Mount> {
    let mounts = policy.mounts();
    let all = [
        (&mounts.input_dir, "/input", false),
        (&mounts.output_dir, "/output", true),
    ];
    all.into_iter().filter_map(|(given, target, writable)| {
        let source = PathBuf::from(&given.as_ref()?.value);
        Some(Mount {
            source: std::path::absolute(&source).unwrap_or(source),
            target: target.into(),
            writable,
        })
    })
}

impl SetLimits {
    /// Those of a policy.
    fn of(limits: &Limits) -> Self {
        let value = |given: &Option<Given<u64>>| given.as_ref().map(|given| given.value);
        let mib = |given| value(given).map(|mib| mib.saturating_mul(1 << 20));
        let pids = value(&limits.max_processes);
        Self {
            timeout: value(&limits.timeout_seconds).map(Duration::from_secs),
            memory: mib(&limits.max_memory_mb),
            cpu: limits.max_cpu.as_ref().map(|given| given.value),
            pids: pids.map(|pids| u32::try_from(pids).unwrap_or(u32::MAX)),
            disk: mib(&limits.max_disk_mb),
            output_max: value(&limits.max_output_bytes),
        }
    }

    /// The limits that are higher than others, unless a flag sets them.
    fn raised(&self, others: &Self, flags: &Self) -> Vec<&'static str> {
        let higher = |set: Option<f64>, other: Option<f64>, flag: bool| {
            !flag && set.zip(other).is_some_and(|(set, other)| set > other)
        };
        #[expect(clippy::cast_precision_loss, reason = "only compared")]
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let all = [
            (
                "timeout",
                higher(
                    self.timeout.map(|time| time.as_secs_f64()),
                    others.timeout.map(|time| time.as_secs_f64()),
                    flags.timeout.is_some(),
                ),
            ),
            (
                "memory",
                higher(
                    bytes(self.memory),
                    bytes(others.memory),
                    flags.memory.is_some(),
                ),
            ),
            ("cpu", higher(self.cpu, others.cpu, flags.cpu.is_some())),
            (
                "pids",
                higher(
                    self.pids.map(f64::from),
                    others.pids.map(f64::from),
                    flags.pids.is_some(),
                ),
            ),
            (
                "disk",
                higher(bytes(self.disk), bytes(others.disk), flags.disk.is_some()),
            ),
            (
                "output_max",
                higher(
                    bytes(self.output_max),
                    bytes(others.output_max),
                    flags.output_max.is_some(),
                ),
            ),
        ];
        let raised = all.into_iter().filter(|(_, raised)| *raised);
        raised.map(|(name, _)| name).collect()
    }

    /// These limits, and where there are none, the others.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        Self {
            timeout: self.timeout.or(others.timeout),
            memory: self.memory.or(others.memory),
            cpu: self.cpu.or(others.cpu),
            pids: self.pids.or(others.pids),
            disk: self.disk.or(others.disk),
            output_max: self.output_max.or(others.output_max),
        }
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_higher_limit_that_no_flag_sets_is_raised() {
        let of = |memory, cpu| SetLimits {
            memory,
            cpu,
            ..SetLimits::default()
        };
        let none = SetLimits::default();
        let others = of(Some(10), Some(1.0));
        assert_eq!(of(Some(10), Some(0.5)).raised(&others, &none), [""; 0]);
        assert_eq!(
            of(Some(11), Some(1.5)).raised(&others, &none),
            ["memory", "cpu"]
        );
        let flags = of(Some(5), None);
        assert_eq!(of(Some(11), Some(1.5)).raised(&others, &flags), ["cpu"]);
        assert_eq!(of(None, Some(2.0)).or(&others), of(Some(10), Some(2.0)));
    }
}
