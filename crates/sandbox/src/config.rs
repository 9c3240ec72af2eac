//! What a caller asks of a session, before it is checked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brig_egress::{Layer, RuleSet};
use brig_policy::PolicySet;
use serde::{Deserialize, Serialize};

use crate::Control;
use crate::backend::Options;

/// Bytes of one MiB.
pub const MIB: u64 = 1024 * 1024;

/// A limit, and whether it was asked for. What was asked for is enforced or refused; a default may
/// fall back to a weaker mechanism, and so may what was asked for as best effort.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit<T> {
    /// The limit.
    pub value: T,
    /// Whether somebody requested it.
    pub asked: bool,
    /// Whether it may be only observed although somebody requested it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
}

impl<T> Limit<T> {
    /// A default.
    pub const fn default_of(value: T) -> Self {
        Self {
            value,
            asked: false,
            best_effort: false,
        }
    }

    /// A limit that somebody requested. It is enforced or refused.
    pub const fn asked(value: T) -> Self {
        Self {
            value,
            asked: true,
            best_effort: false,
        }
    }

    /// A limit that somebody requested. Where nothing enforces it, it may be observed.
    pub const fn best_effort(value: T) -> Self {
        Self {
            value,
            asked: true,
            best_effort: true,
        }
    }

    /// Whether a mechanism that can be evaded is refused.
    pub(crate) const fn must_be_enforced(&self) -> bool {
        self.asked && !self.best_effort
    }
}

/// What happens when a stream is longer than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OutputOverflow {
    /// The rest is counted and dropped; the program goes on.
    #[default]
    Truncate,
    /// The execution ends.
    Kill,
}

/// The limits of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// For each execution.
    pub timeout: Limit<Duration>,
    /// For all processes of the sandbox together.
    pub memory_bytes: Limit<u64>,
    /// Processors, which may be a fraction.
    pub cpus: Limit<f64>,
    /// Processes and threads at a time.
    pub processes: Limit<u32>,
    /// For all that is written in the sandbox together.
    pub disk_bytes: Limit<u64>,
    /// For each of stdout and stderr.
    pub output_bytes: Limit<u64>,
    /// What happens beyond `output_bytes`.
    pub output_overflow: OutputOverflow,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Limit::default_of(Duration::from_secs(60)),
            memory_bytes: Limit::default_of(512 * MIB),
            cpus: Limit::default_of(1.0),
            processes: Limit::default_of(256),
            disk_bytes: Limit::default_of(256 * MIB),
            output_bytes: Limit::default_of(MIB),
            output_overflow: OutputOverflow::Truncate,
        }
    }
}

/// A host directory or file, as asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// On the host.
    pub source: PathBuf,
    /// Absolute, inside the sandbox.
    pub target: PathBuf,
    /// Whether code in the sandbox may write to it.
    pub writable: bool,
}

/// What may be reached, by the source of each rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// Every public host may be reached that no rule denies.
    pub open: bool,
    /// Rules, by who set them.
    pub layers: Vec<Layer>,
}

impl NetworkConfig {
    /// Whether anything may be reached at all.
    pub fn is_on(&self) -> bool {
        self.open || self.layers.iter().any(|layer| !layer.allow.is_empty())
    }

    /// Puts a layer in place of the one of its kind.
    pub fn replace(&mut self, layer: Layer) {
        self.layers.retain(|own| own.kind != layer.kind);
        self.layers.push(layer);
    }

    /// The rules, ready to decide.
    pub fn rules(&self) -> RuleSet {
        let layers = self.layers.clone();
        if self.open {
            RuleSet::open(layers)
        } else {
            RuleSet::new(layers)
        }
    }
}

/// What a caller asks of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionConfig {
    /// Its limits.
    pub limits: Limits,
    /// Environment variables of every execution.
    pub env: Vec<(String, String)>,
    /// Files and directories of the host that the sandbox shows.
    pub mounts: Vec<MountSpec>,
    /// A host directory to use as the workspace, writable.
    pub workspace: Option<PathBuf>,
    /// A root file system to use in place of the host's system directories.
    pub rootfs: Option<PathBuf>,
    /// Whether the system directories are read-only.
    pub read_only_root: bool,
    /// The Python to use in place of the system's: an interpreter or a virtual environment.
    pub python: Option<PathBuf>,
    /// Options of the backend, such as an image. Only the backend knows what they mean.
    #[serde(default)]
    pub options: Options,
    /// What may be reached. Nothing by default.
    #[serde(default)]
    pub network: NetworkConfig,
    /// Controls that are required beyond those that the rest of the config needs. Only
    /// [`SessionConfig::require`] and [`SessionConfig::under`] add to them.
    #[serde(default)]
    pub needs: RequiredControls,
    /// Host paths that are shown with all that is in them, even if their names are those of secrets.
    #[serde(default)]
    pub show_secrets: Vec<PathBuf>,
    /// Controls that the operator accepts to be missing.
    pub waive: BTreeSet<Control>,
    /// Record every start of a program, even without a policy about commands.
    #[serde(default)]
    pub observe_commands: bool,
    /// Asked, beside the sandbox's own decider, before anything runs. Only [`SessionConfig::under`] sets them,
    /// because it also applies their limits.
    #[serde(default)]
    pub policies: SessionPolicies,
}

/// The required controls of a [`SessionConfig`]. They can be read and added to, not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequiredControls(pub(crate) BTreeSet<Control>);

/// The policies of a [`SessionConfig`]. They can be read, not set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionPolicies(pub(crate) Option<Arc<PolicySet>>);

impl SessionConfig {
    /// Requires a control: a backend that does not enforce it is refused. No policy can waive it.
    pub fn require(&mut self, control: Control) {
        self.needs.0.insert(control);
    }

    /// The controls that are required beyond those that the rest of the config needs.
    pub fn needs(&self) -> &BTreeSet<Control> {
        &self.needs.0
    }

    /// What is asked, beside the sandbox's own decider, before anything runs.
    pub fn policies(&self) -> Option<&Arc<PolicySet>> {
        self.policies.0.as_ref()
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            env: Vec::new(),
            mounts: Vec::new(),
            workspace: None,
            rootfs: None,
            read_only_root: true,
            python: None,
            options: Options::new(),
            network: NetworkConfig::default(),
            needs: RequiredControls::default(),
            show_secrets: Vec::new(),
            waive: BTreeSet::new(),
            observe_commands: false,
            policies: SessionPolicies::default(),
        }
    }
}
