use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use brig_guest_host::link::{GuestInstance, Stream};
use brig_sandbox::backend::{BackendKind, StateKind};
use brig_sandbox::{
    Backend, BackendId, Capabilities, Error, Finding, Instance, Language, Plan, Result,
    SessionConfig, Unavailable,
};
use brig_wire::{Hello, RootSource, VERSION};
use tokio::net::UnixStream;

use crate::guard::{NativeGuard, Starting};
use crate::host::Host;
use crate::limits::LimitMechanisms;
use crate::{commands, detached, interpreters, limits, nesting, network, root, spawn};

/// What can be said of the backend without a machine to look at. It has no options.
pub static KIND: BackendKind = BackendKind {
    name: "native",
    title: "Native",
    options: &[],
    settings: &[],
    mounts_scripts: true,
};

pub(crate) static ID: BackendId = BackendId::of(KIND.name);

/// Where programs find their files.
pub(crate) const WORKSPACE: &str = "/workspace";
/// Each is a mount that is copied for every execution. This many take a quarter of a second.
const MOST_HIDDEN: usize = 4000;

/// How long the processes of a dead owner may take to end, before their group is left to the next sweep.
const SWEEP_TRIES: u32 = 100;
const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// Sandboxes in Linux namespaces.
#[derive(Debug, Default)]
pub struct NativeBackend {
    host: OnceLock<Host>,
    swept: OnceLock<()>,
}

impl NativeBackend {
    /// The kernel of this machine, looked at when it is first needed.
    pub fn new() -> Self {
        spawn::prepare();
        Self::default()
    }

    /// As on a kernel without overlays. Only for tests.
    #[doc(hidden)]
    pub fn with_copied_layers() -> Self {
        let host = Host {
            overlay_layers: false,
            ..Host::detect()
        };
        Self {
            host: host.into(),
            ..Self::default()
        }
    }

    fn host(&self) -> &Host {
        self.host.get_or_init(Host::detect)
    }
}

#[async_trait]
impl Backend for NativeBackend {
    fn id(&self) -> &BackendId {
        &ID
    }

    fn kind(&self) -> &'static BackendKind {
        &KIND
    }

    async fn probe(&self, config: &SessionConfig) -> Result<Capabilities, Unavailable> {
        if !Path::new("/proc/self/stat").exists() {
            return Err(Unavailable {
                fix: Some("mount it: mount -t proc proc /proc".into()),
                ..Unavailable::new("/proc is not mounted")
            });
        }
        let host = self.host();
        let mut capabilities = Capabilities::new(limits::controls(host, &config.limits));
        capabilities.state = match host.overlay_layers {
            true => StateKind::Layered,
            false => StateKind::Copied,
        };
        capabilities.pins_names = true;
        capabilities.most_hidden = MOST_HIDDEN;
        Ok(capabilities)
    }

    async fn findings(&self, state: Option<&Path>) -> Vec<Finding> {
        self.host().findings(state)
    }

    fn languages(&self, plan: &Plan) -> Option<Vec<Language>> {
        let found = interpreters::find(plan).ok()?.in_sandbox();
        let there = |language: &Language| found.get(*language).is_some();
        Some(Language::ALL.into_iter().filter(there).collect())
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        self.start(plan).await.map_err(nesting::explain)
    }

    async fn sweep(&self) -> Result<usize> {
        let cgroups = &self.host().cgroups;
        let mut swept = cgroups.sweep();
        let mut removed = swept.removed;
        for _ in 0..SWEEP_TRIES {
            if swept.busy == 0 {
                break;
            }
            tokio::time::sleep(SWEEP_PAUSE).await;
            swept = cgroups.sweep();
            removed += swept.removed;
        }
        Ok(removed)
    }
}

impl NativeBackend {
    async fn start(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        let host = self.host();
        let mechanisms = LimitMechanisms::choose(host, plan.limits());
        let interpreters = interpreters::find(plan)?;
        let (identity, mut detached) = detached::open(plan)?;
        let ending = std::mem::take(&mut detached.ending);
        let (mut setup, mut inherited) =
            root::plan(host, plan, &identity, detached, &interpreters)?;
        let folders = limits::folders(host, plan, &interpreters);
        let mut confine = limits::confine(host, &mechanisms, plan, &interpreters);
        let decider = commands::decider(plan, &interpreters)?;
        if let Some(decider) = &decider {
            let mediated = limits::mediated_calls(folders);
            commands::apply(decider, &mut setup, &mut confine, &mut inherited, mediated)?;
        }
        let hello = Hello {
            version: VERSION,
            confine,
            root: RootSource::Setup(setup.into()),
            workspace: WORKSPACE.into(),
        };

        let mut env = brig_guest_host::listeners::env(plan);
        env.extend(interpreters.env(plan));
        let group = mechanisms.create_group(&host.cgroups, plan.limits())?;
        let spawned = spawn::start(&identity, &mechanisms, group, inherited).await?;
        // While the guest sets up the sandbox, there is time to remove what dead owners have left.
        if self.swept.set(()).is_ok() {
            self.sweep().await?;
        }
        let stream = UnixStream::from_std(spawned.stream)
            .map_err(|error| Error::io("register the guest's stream", error))?;
        let (from_guest, to_guest) = stream.into_split();
        let guard = NativeGuard::new(
            spawned.process,
            spawned.group,
            Starting {
                gate: spawned.gate,
                handoff: spawned.handoff,
                decider,
            },
            &mechanisms,
            plan,
            host,
            identity,
        );
        let instance = GuestInstance::start(
            guard,
            Stream {
                from_guest: Box::new(from_guest),
                to_guest: Box::new(to_guest),
            },
            hello,
            plan.limits().clone(),
            interpreters.in_sandbox(),
            env,
        )
        .await?;
        drop(ending);
        match network::serve(plan, instance.guard().take_sockets()) {
            Ok((network, sink, tools)) => {
                instance.guard().watch_packets(sink);
                let program = tools.is_some().then_some(brig_guest_image::TOOL);
                let instance = instance.with_network(network);
                let instance = instance.with_tools(tools, program).await?;
                Ok(Box::new(instance))
            }
            Err(error) => {
                instance.destroy().await?;
                Err(error)
            }
        }
    }
}
