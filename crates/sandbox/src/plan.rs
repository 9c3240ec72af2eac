//! The checked combination of config and backend: what will be enforced, and by what.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_audit::Event as Fact;
use brig_policy::{Commands, PolicySet};
use serde::Serialize;

use crate::config::NetworkConfig;
use crate::{Backend, Control, ControlState, Limits, Result, SessionConfig, env, mounts, needs};

/// A plan can only be made by [`Plan::make`], which refuses what the backend can't hold.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) limits: Limits,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) mounts: Vec<CheckedMount>,
    pub(crate) workspace: Option<CheckedMount>,
    pub(crate) rootfs: Option<PathBuf>,
    pub(crate) read_only_root: bool,
    pub(crate) python: Option<PathBuf>,
    pub(crate) image: Option<String>,
    pub(crate) runtime: Option<String>,
    pub(crate) network: NetworkConfig,
    pub(crate) waived: Vec<Control>,
    pub(crate) enforcement: Vec<ControlState>,
    /// Saved states of the workspace to start from, lowest first.
    pub(crate) layers: Vec<PathBuf>,
    /// Brig's own state, which stays out of reach.
    pub(crate) state: Option<PathBuf>,
    pub(crate) policies: Option<Arc<PolicySet>>,
    pub(crate) observe_commands: bool,
}

/// A mount whose source was resolved and found harmless. Whoever mounts it must make sure that
/// what it opens is still this device and inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedMount {
    /// Absolute, without symbolic links.
    pub source: PathBuf,
    pub target: PathBuf,
    pub writable: bool,
    pub device: u64,
    pub inode: u64,
}

impl Plan {
    /// Checks every value of the config, and that the backend holds what is needed.
    pub fn make(
        config: &SessionConfig,
        backend: &dyn Backend,
        layers: Vec<PathBuf>,
    ) -> Result<Self> {
        Self::make_beside(config, backend, layers, None)
    }

    /// The same, with Brig's own state kept out of reach of mounts.
    pub(crate) fn make_beside(
        config: &SessionConfig,
        backend: &dyn Backend,
        layers: Vec<PathBuf>,
        state: Option<&Path>,
    ) -> Result<Self> {
        config.limits.check()?;
        env::check_all(&config.env)?;
        backend.admit(config)?;
        let places = mounts::check(config, state)?;
        let enforcement = needs::check(config, backend.controls_for(config))?;
        Ok(Self {
            limits: config.limits.clone(),
            env: config.env.clone(),
            mounts: places.mounts,
            workspace: places.workspace,
            rootfs: places.rootfs,
            read_only_root: config.read_only_root,
            python: places.python,
            image: config.image.clone(),
            runtime: config.runtime.clone(),
            network: config.network.clone(),
            waived: config.waive.iter().copied().collect(),
            enforcement,
            layers,
            state: state.map(Path::to_owned),
            policies: config.policies.clone(),
            observe_commands: config.observe_commands,
        })
    }

    /// That a session was created, and what it does without.
    pub(crate) fn created(&self, backend: &str) -> Vec<Fact> {
        let names = self.waived.iter().map(|control| control.name().to_owned());
        let created = Fact::SessionCreated {
            backend: backend.into(),
            waived: names.clone().collect(),
        };
        let waivers = names.map(|control| Fact::ControlWaived { control });
        std::iter::once(created).chain(waivers).collect()
    }

    /// Whether a folder of the host that a backend finds it needs may be shown in the sandbox: the
    /// same rules hold as for mounts that are asked for.
    pub fn may_show(&self, folder: &Path) -> Result<()> {
        mounts::may_show(folder, self.state.as_deref())
    }

    /// Where Brig keeps its own state; no sandbox sees it.
    pub fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    pub fn mounts(&self) -> &[CheckedMount] {
        &self.mounts
    }

    pub fn workspace(&self) -> Option<&CheckedMount> {
        self.workspace.as_ref()
    }

    pub fn rootfs(&self) -> Option<&PathBuf> {
        self.rootfs.as_ref()
    }

    pub fn read_only_root(&self) -> bool {
        self.read_only_root
    }

    pub fn python(&self) -> Option<&PathBuf> {
        self.python.as_ref()
    }

    pub fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    pub fn runtime(&self) -> Option<&str> {
        self.runtime.as_deref()
    }

    /// What may be reached.
    pub fn network(&self) -> &NetworkConfig {
        &self.network
    }

    pub fn waived(&self) -> &[Control] {
        &self.waived
    }

    /// What the policies say about commands.
    pub fn commands(&self) -> Option<&Commands> {
        self.policies.as_ref().map(|policies| policies.commands())
    }

    /// Whether every program that is started has to be on record.
    pub fn watches_commands(&self) -> bool {
        self.observe_commands || self.commands().is_some_and(|commands| !commands.is_empty())
    }

    /// What holds each limit, and how strongly.
    pub fn enforcement(&self) -> &[ControlState] {
        &self.enforcement
    }

    /// What the workspace starts with, lowest first.
    pub fn layers(&self) -> &[PathBuf] {
        &self.layers
    }
}
