//! The checked combination of config and backend: what will be enforced, and by what.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_audit::Event as Fact;
use brig_policy::{Commands, PolicySet};
use brig_tools::ToolRegistry;
use serde::Serialize;

use crate::backend::{InitialState, Options, Setting, StateKind, Unsupported};
use crate::config::NetworkConfig;
use crate::directories::{self, Private};
use crate::mounts::Hiding;
use crate::mounts::python::Python;
use crate::tools::ToolSet;
use crate::{
    Backend, BackendId, Capabilities, Control, ControlState, Error, Limits, Result, SessionConfig,
    env, mounts, needs,
};

/// A plan can only be made by [`Plan::make`], which refuses what the backend cannot enforce.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) limits: Limits,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) mounts: Vec<CheckedMount>,
    pub(crate) workspace: Option<CheckedMount>,
    pub(crate) rootfs: Option<CheckedMount>,
    pub(crate) read_only_root: bool,
    pub(crate) python: Option<Python>,
    pub(crate) options: Options,
    pub(crate) chosen: Options,
    pub(crate) notes: Vec<String>,
    pub(crate) network: NetworkConfig,
    pub(crate) show_secrets: Vec<PathBuf>,
    pub(crate) waived: Vec<Control>,
    pub(crate) enforcement: Vec<ControlState>,
    pub(crate) initial: InitialState,
    /// How its files are saved.
    pub(crate) state_kind: StateKind,
    /// Brig's own state, which no mount may show.
    pub(crate) state: Option<PathBuf>,
    /// All that stays out of reach, the state included.
    pub(crate) private: Vec<Private>,
    pub(crate) policies: Option<Arc<PolicySet>>,
    pub(crate) observe_commands: bool,
    pub(crate) saved: bool,
    pub(crate) tools: ToolSet,
}

/// A mount whose source was resolved and found harmless. Whoever mounts it must make sure that
/// what it opens is still this device and inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedMount {
    /// Absolute, without symbolic links.
    pub source: PathBuf,
    /// Absolute, inside the sandbox.
    pub target: PathBuf,
    /// Whether code in the sandbox may write to it.
    pub writable: bool,
    /// Of the source.
    pub device: u64,
    /// Of the source.
    pub inode: u64,
    /// What in it is a secret by its name. Whoever mounts it puts something empty over each.
    pub hidden: Vec<Hidden>,
    /// Directories that may not be renamed, parents first. Whoever mounts it binds each to itself.
    pub pinned: Vec<Pinned>,
}

/// A file, directory or link in a mount that is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hidden {
    /// Below the mount.
    pub path: PathBuf,
    /// What it is.
    pub kind: HiddenKind,
    /// The device it is on.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Why it is hidden.
    pub reason: HiddenReason,
}

/// What is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HiddenKind {
    /// A directory with all that is in it.
    Directory,
    /// A file.
    File,
    /// It leads to something that is hidden, and is covered so that it can't be removed. Only for
    /// backends that can: [`Capabilities::pins_names`].
    Link,
}

/// Why something is hidden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum HiddenReason {
    /// It is called like a secret.
    Name,
    /// This link, which is called like a secret, leads there.
    Link(PathBuf),
    /// It contains this many secrets, which can't be hidden one by one.
    Holds(usize),
    /// It can't be listed or entered.
    Closed,
    /// What is below has no path that is short enough.
    Depth,
    /// A FIFO in a read-only mount. Programs could write to it, and take what host programs write to it.
    Fifo,
}

/// A directory in a mount whose name a secret is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pinned {
    /// Below the mount.
    pub path: PathBuf,
    /// The device it is on.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

impl Plan {
    /// Checks every value of the config, and that the backend enforces what is needed.
    pub async fn make(
        config: &SessionConfig,
        backend: &dyn Backend,
        initial: InitialState,
    ) -> Result<Self> {
        let offer = probe(config, backend).await?;
        Self::of(config, &offer, initial, None, Private::of_user(), None)
    }

    /// The same, for what [`probe`] found. No mount may show Brig's own state in `state`, nor what is
    /// in `private`. Without a registry no tool can be called.
    pub(crate) fn of(
        config: &SessionConfig,
        offer: &Capabilities,
        initial: InitialState,
        state: Option<&Path>,
        mut private: Vec<Private>,
        registry: Option<&ToolRegistry>,
    ) -> Result<Self> {
        private.extend(state.map(|state| Private::new(state, directories::STATE)));
        let hiding = Hiding {
            pins: offer.pins_names,
            most: offer.most_hidden,
        };
        let checked = mounts::check(config, &private, hiding)?;
        let enforcement = needs::check(config, offer.controls.clone())?;
        let tools = match registry {
            // Without the control no tool can be called.
            _ if config.waive.contains(&Control::Tools) => ToolSet::default(),
            Some(registry) => ToolSet::of(registry, config.policies().map(Arc::as_ref))?,
            None => ToolSet::default(),
        };
        Ok(Self {
            limits: config.limits.clone(),
            env: config.env.clone(),
            mounts: checked.mounts,
            workspace: checked.workspace,
            rootfs: checked.rootfs,
            read_only_root: config.read_only_root,
            python: checked.python,
            options: config.options.clone(),
            chosen: offer.chosen.clone(),
            notes: offer.notes.clone(),
            network: config.network.clone(),
            show_secrets: config.show_secrets.clone(),
            waived: config.waive.iter().copied().collect(),
            enforcement,
            initial,
            state_kind: offer.state,
            state: state.map(Path::to_owned),
            private,
            policies: config.policies().cloned(),
            observe_commands: config.observe_commands,
            saved: true,
            tools,
        })
    }

    /// The records of a new session: that it was created, and which controls are waived.
    pub(crate) fn created(&self, backend: &BackendId) -> Vec<Fact> {
        let names = self.waived.iter().map(|control| control.name().to_owned());
        let created = Fact::SessionCreated {
            backend: backend.to_string(),
            waived: names.clone().collect(),
        };
        let waivers = names.map(|control| Fact::ControlWaived { control });
        std::iter::once(created).chain(waivers).collect()
    }

    /// Everything of the host that is mounted beside the system, but a root that was given.
    pub fn shown(&self) -> impl Iterator<Item = &CheckedMount> {
        let roots = self.python.iter().flat_map(|python| &python.roots);
        self.workspace.iter().chain(&self.mounts).chain(roots)
    }

    /// Whether a host directory that a backend needs may be shown in the sandbox, by the rules for
    /// mounts that are asked for.
    pub fn may_show(&self, directory: &Path) -> Result<CheckedMount> {
        mounts::may_show(directory, &self.private, &self.show_secrets)
    }

    /// Whether the files of the workspace may be kept after the sandbox.
    pub fn is_saved(&self) -> bool {
        self.saved
    }

    /// For a sandbox that ends with its one execution.
    #[must_use]
    pub(crate) fn for_one_execution(mut self) -> Self {
        self.saved = false;
        self
    }

    /// Where Brig keeps its own state; no sandbox sees it.
    pub fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// The limits to enforce.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Environment variables of every execution.
    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// What is mounted.
    pub fn mounts(&self) -> &[CheckedMount] {
        &self.mounts
    }

    /// The host directory that is the workspace, if there is one.
    pub fn workspace(&self) -> Option<&CheckedMount> {
        self.workspace.as_ref()
    }

    /// The home directory inside. If the workspace is a host directory, another one that goes with the
    /// sandbox: programs would leave caches and settings in a directory of the user.
    pub fn home(&self) -> &'static str {
        match self.workspace {
            Some(_) => "/tmp/home",
            None => "/workspace",
        }
    }

    /// The root file system to use, if one was given.
    pub fn rootfs(&self) -> Option<&CheckedMount> {
        self.rootfs.as_ref()
    }

    /// Whether the system directories are read-only.
    pub fn read_only_root(&self) -> bool {
        self.read_only_root
    }

    /// The Python that was asked for, and the host directories it needs.
    pub fn python(&self) -> Option<&Python> {
        self.python.as_ref()
    }

    /// A value of an option of the backend.
    pub fn option(&self, name: &str) -> Option<&str> {
        let value = self.chosen.get(name).or_else(|| self.options.get(name));
        value.map(String::as_str)
    }

    /// Whether the backend chose the value of this option.
    pub fn is_chosen(&self, name: &str) -> bool {
        self.chosen.contains_key(name)
    }

    /// What the user should know about what the backend chose.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What may be reached.
    pub fn network(&self) -> &NetworkConfig {
        &self.network
    }

    /// Controls that the operator waived.
    pub fn waived(&self) -> &[Control] {
        &self.waived
    }

    /// The tools that code may call.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// What decides, if there are policies.
    pub fn policies(&self) -> Option<&PolicySet> {
        self.policies.as_deref()
    }

    /// What the policies say about commands.
    pub fn commands(&self) -> Option<&Commands> {
        self.policies.as_ref().map(|policies| policies.commands())
    }

    /// Whether every start of a program has to be recorded.
    pub fn watches_commands(&self) -> bool {
        self.observe_commands || self.commands().is_some_and(|commands| !commands.is_empty())
    }

    /// What enforces each control, and how strongly.
    pub fn enforcement(&self) -> &[ControlState] {
        &self.enforcement
    }

    /// What the workspace starts with.
    pub fn initial(&self) -> &InitialState {
        &self.initial
    }
}

/// Asks the backend what it can do for a config whose own values are valid.
pub(crate) async fn probe(config: &SessionConfig, backend: &dyn Backend) -> Result<Capabilities> {
    config.limits.check()?;
    env::check_all(&config.env)?;
    let id = backend.id();
    backend.kind().check(id, &config.options)?;
    let offer = backend.probe(config).await;
    let offer = offer.map_err(|cause| Error::Unavailable {
        backend: id.clone(),
        cause,
    })?;
    let given = |setting| match setting {
        Setting::Rootfs => config.rootfs.is_some(),
        Setting::Python => config.python.is_some(),
    };
    match offer.unsupported.iter().find(|one| given(one.setting)) {
        Some(Unsupported { setting, instead }) => Err(Error::InvalidConfig {
            what: "config",
            problem: format!(
                "the {id} backend does not support {}; {instead}",
                setting.name()
            ),
        }),
        None => Ok(offer),
    }
}
