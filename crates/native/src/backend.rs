use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use brig_sandbox::link::{GuestInstance, Stream};
use brig_sandbox::{Backend, Controls, Error, Finding, Instance, Limits, Plan, Result};
use brig_wire::{Hello, Place, VERSION};
use tokio::net::UnixStream;

use crate::guard::{NativeGuard, Starting};
use crate::host::Host;
use crate::identity::Identity;
use crate::limits::Means;
use crate::{commands, interpreters, limits, network, root, spawn};

/// Where programs find their files.
pub const WORKSPACE: &str = "/workspace";

/// How long the processes of a dead owner get to end, before their group is left to the next sweep.
const SWEEP_LOOKS: u32 = 100;
const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// Sandboxes made of namespaces of this machine's kernel.
#[derive(Debug, Default)]
pub struct NativeBackend {
    host: OnceLock<Host>,
    swept: OnceLock<()>,
}

impl NativeBackend {
    pub fn new() -> Self {
        spawn::prepare();
        Self::default()
    }

    /// As on a kernel that can't stack layers. Only tests need it: it does the same, slower.
    #[doc(hidden)]
    pub fn with_copied_layers() -> Self {
        let host = Host {
            overlay_layers: false,
            ..Host::look()
        };
        Self {
            host: host.into(),
            ..Self::default()
        }
    }

    /// What was found on this machine, good or missing.
    pub fn report(&self) -> Vec<Finding> {
        self.host().findings()
    }

    fn host(&self) -> &Host {
        self.host.get_or_init(Host::look)
    }
}

#[async_trait]
impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    fn controls(&self, limits: &Limits) -> Controls {
        limits::controls(self.host(), limits)
    }

    fn copies_layers(&self) -> bool {
        !self.host().overlay_layers
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        let host = self.host();
        let means = Means::choose(host, plan.limits());
        let identity = Identity::of_caller();
        let interpreters = interpreters::find(plan)?;
        let (mut setup, mut inherited) = root::plan(host, plan, &identity, &interpreters)?;
        let mut confine = limits::confine(host, &means, plan);
        let judge = commands::judge(plan, &interpreters)?;
        if let Some(judge) = &judge {
            commands::apply(judge, &mut setup, &mut confine, &mut inherited)?;
        }
        let hello = Hello {
            version: VERSION,
            confine,
            place: Place::Own(setup.into()),
            workspace: WORKSPACE.into(),
        };

        let mut env = brig_sandbox::doors::env(plan);
        env.extend(interpreters.env(plan));
        let group = means.create_group(&host.cgroups, plan.limits())?;
        let spawned = spawn::start(&identity, &means, group, inherited).await?;
        // While the guest builds its place there is time to look for what dead owners left.
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
                judge,
            },
            &means,
            plan,
            host.overlay_layers,
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
        if !plan.network().is_on() {
            return Ok(Box::new(instance));
        }
        match network::serve(plan, instance.guard().take_doors()) {
            Ok(network) => Ok(Box::new(instance.with_network(network))),
            Err(error) => {
                instance.destroy().await?;
                Err(error)
            }
        }
    }

    async fn sweep(&self) -> Result<usize> {
        let cgroups = &self.host().cgroups;
        let mut swept = cgroups.sweep();
        let mut removed = swept.removed;
        for _ in 0..SWEEP_LOOKS {
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
