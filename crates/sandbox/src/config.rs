//! What a caller asks of a session, before it is checked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brig_egress::{Layer, RuleSet};
use brig_policy::PolicySet;
use serde::{Deserialize, Serialize};

use crate::Control;

pub const MIB: u64 = 1024 * 1024;

/// A limit, and whether somebody asked for it. What was asked for is held or refused; a default
/// may fall back to a weaker means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit<T> {
    pub value: T,
    pub asked: bool,
}

impl<T> Limit<T> {
    pub const fn default_of(value: T) -> Self {
        Self {
            value,
            asked: false,
        }
    }

    pub const fn asked(value: T) -> Self {
        Self { value, asked: true }
    }
}

/// What happens when a stream is longer than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputOverflow {
    /// The rest is counted and dropped; the program goes on.
    #[default]
    Truncate,
    /// The execution ends.
    Kill,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub timeout: Limit<Duration>,
    pub memory_bytes: Limit<u64>,
    pub cpus: Limit<f64>,
    pub processes: Limit<u32>,
    /// For all writable places of the sandbox together.
    pub disk_bytes: Limit<u64>,
    /// For each of stdout and stderr.
    pub output_bytes: Limit<u64>,
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

/// A folder or file of the host, as asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    pub source: PathBuf,
    /// Absolute, inside the sandbox.
    pub target: PathBuf,
    pub writable: bool,
}

/// What may be reached, and who said so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// Every public host may be reached that nobody denies.
    pub open: bool,
    pub layers: Vec<Layer>,
}

impl NetworkConfig {
    /// Whether anything may be reached at all.
    pub fn is_on(&self) -> bool {
        self.open || self.layers.iter().any(|layer| !layer.allow.is_empty())
    }

    /// Puts a layer in the place of the one of its kind.
    pub fn replace(&mut self, layer: Layer) {
        self.layers.retain(|own| own.kind != layer.kind);
        self.layers.push(layer);
    }

    pub fn rules(&self) -> RuleSet {
        let layers = self.layers.clone();
        if self.open {
            RuleSet::open(layers)
        } else {
            RuleSet::new(layers)
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionConfig {
    pub limits: Limits,
    pub env: Vec<(String, String)>,
    pub mounts: Vec<MountSpec>,
    /// A folder of the host that takes the place of the private workspace, writable.
    pub workspace: Option<PathBuf>,
    /// A root file system to use in place of the host's system folders.
    pub rootfs: Option<PathBuf>,
    pub read_only_root: bool,
    /// The Python to use in place of the system's: an interpreter or a virtual environment.
    pub python: Option<PathBuf>,
    /// The image to start from, where the backend has images.
    #[serde(default)]
    pub image: Option<String>,
    /// What runs the image, where the backend has a choice.
    #[serde(default)]
    pub runtime: Option<String>,
    /// What may be reached. Nothing, unless somebody says so.
    #[serde(default)]
    pub network: NetworkConfig,
    /// Controls that a policy asks for beyond those that the rest of the config needs.
    #[serde(default)]
    pub needs: BTreeSet<Control>,
    /// Controls that the operator gives up by name.
    pub waive: BTreeSet<Control>,
    /// Every program that is started is to be on record, also if no policy says anything about it.
    #[serde(default)]
    pub observe_commands: bool,
    /// What is asked, beside the sandbox's own decider, before anything runs. Set by
    /// [`SessionConfig::under`], which also holds their limits.
    #[serde(default)]
    pub policies: Option<Arc<PolicySet>>,
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
            image: None,
            runtime: None,
            network: NetworkConfig::default(),
            needs: BTreeSet::new(),
            waive: BTreeSet::new(),
            observe_commands: false,
            policies: None,
        }
    }
}
