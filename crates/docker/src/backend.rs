use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use brig_sandbox::link::{GuestInstance, Interpreters, Stream};
use brig_sandbox::{
    Backend, Controls, Error, Finding, Instance, Limits, Plan, Result, SessionConfig,
};
use brig_wire::{Container, Denied, Hello, Place, VERSION};

use crate::address::{Address, Environment};
use crate::commands::Lists;
use crate::engine::{Engine, Facts, PATIENCE};
use crate::guard::DockerGuard;
use crate::hardening::{self, Parts};
use crate::image::Image;
use crate::leftovers::{Leftovers, Name};
use crate::mounts::WORKSPACE;
use crate::outline::Outlines;
use crate::owner::Owner;
use crate::runtime::Runtime;
use crate::stream::{FromGuest, LastWords};
use crate::{derived, doctor, image, limits, mounts, network, programs, sweep};

/// Told of what takes long, a line at a time.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(&str) + Send + Sync>);

impl Progress {
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, line: &str) {
        (self.0)(line);
    }
}

impl Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

/// Which engine, and how patient to be with it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is; without, what the environment says.
    pub address: Option<Address>,
    /// How long one request may take.
    pub patience: Duration,
    pub progress: Option<Progress>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            patience: PATIENCE,
            progress: None,
        }
    }
}

/// Sandboxes in containers of an engine.
#[derive(Debug)]
pub struct DockerBackend {
    engine: Engine,
    facts: Facts,
    progress: Option<Progress>,
    leftovers: Leftovers,
    /// One image is prepared at a time.
    preparing: tokio::sync::Mutex<()>,
    known: programs::Known,
    outlines: Outlines,
    swept: OnceLock<()>,
}

impl DockerBackend {
    pub async fn connect(options: Options) -> Result<Self> {
        let address = match options.address {
            Some(address) => address,
            None => Address::find(&Environment::of_process())?,
        };
        let (engine, facts) = Engine::connect(address, options.patience).await?;
        if !facts.architecture.is_empty() && !image::is_ours(&facts.architecture) {
            return Err(Error::Unavailable {
                backend: "docker",
                problem: format!(
                    "the engine's processors are {}, and the guest is for {}",
                    facts.architecture,
                    std::env::consts::ARCH
                ),
            });
        }
        Ok(Self {
            leftovers: Leftovers::new(engine.clone()),
            engine,
            facts,
            progress: options.progress,
            preparing: tokio::sync::Mutex::default(),
            known: programs::Known::default(),
            outlines: Outlines::default(),
            swept: OnceLock::new(),
        })
    }

    /// What the engine is and has, good or missing.
    pub fn report(&self) -> Vec<Finding> {
        doctor::findings(&self.engine, &self.facts)
    }

    #[cfg(test)]
    pub(crate) fn of_facts(facts: Facts) -> Self {
        let docker = bollard::Docker::connect_with_http(
            "tcp://127.0.0.1:1",
            1,
            bollard::API_DEFAULT_VERSION,
        );
        let engine = Engine {
            docker: docker.expect("a client"),
            address: Address::Unix("/nonexistent".into()),
            patience: PATIENCE,
        };
        Self {
            leftovers: Leftovers::new(engine.clone()),
            engine,
            facts,
            progress: None,
            preparing: tokio::sync::Mutex::default(),
            known: programs::Known::default(),
            outlines: Outlines::default(),
            swept: OnceLock::new(),
        }
    }

    /// What the plan says about commands; nothing if it says nothing, and then nothing is watched.
    async fn lists(&self, plan: &Plan, image: &Image) -> Result<Option<Lists>> {
        if !plan.watches_commands() {
            return Ok(None);
        }
        let outline = self
            .outlines
            .of(image, &self.engine, &self.leftovers, plan.state())
            .await?;
        Lists::read(plan, image, &outline).map(Some)
    }

    fn runtime(&self, asked: Option<&str>) -> Result<Runtime> {
        Runtime::choose(&self.facts, asked)
    }

    /// Makes the container and starts it; it is there under its name, or will be removed.
    async fn start(
        &self,
        container: &Name,
        plan: &Plan,
        runtime: &Runtime,
        image: &Image,
        denied: Option<&Denied>,
    ) -> Result<(Stream, LastWords)> {
        let engine = &self.engine;
        let derived = {
            let _alone = self.preparing.lock().await;
            derived::ensure(engine, image, denied, &self.leftovers).await?
        };
        let body = hardening::body(Parts {
            plan,
            facts: &self.facts,
            runtime,
            image,
            derived: &derived,
            labels: Owner::of_process().labels(),
            local: engine.is_local(),
        })?;
        let name = container.as_str();
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        engine
            .ask(
                "create a container",
                engine.docker.create_container(Some(options), body),
            )
            .await?;
        let options = AttachContainerOptionsBuilder::new();
        let options = options
            .stream(true)
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .build();
        // Before the start, so that nothing it says is missed.
        let attached = engine
            .ask(
                "attach to a container",
                engine.docker.attach_container(name, Some(options)),
            )
            .await?;
        engine
            .ask(
                "start a container",
                engine.docker.start_container(name, None),
            )
            .await?;
        let words = LastWords::default();
        let stream = Stream {
            from_guest: Box::new(FromGuest::new(attached.output, words.clone())),
            to_guest: Box::new(attached.input),
        };
        Ok((stream, words))
    }
}

impl DockerBackend {
    /// What a guest that is ready still lacks. On an error its container goes with it.
    async fn furnish(
        &self,
        mut instance: GuestInstance<DockerGuard>,
        plan: &Plan,
        image: &Image,
        lists: Option<Lists>,
    ) -> Result<Box<dyn Instance>> {
        instance = instance.with_unasked(network::serve(plan, lists))?;
        let interpreters = self.known.interpreters(image, &instance).await?;
        instance.set_interpreters(interpreters);
        if plan.workspace().is_none() {
            let layer = plan.layers().first().map(PathBuf::as_path);
            let limit = plan.limits().disk_bytes.value;
            instance = instance.with_copied_files(layer, limit).await?;
        }
        mounts::look_again(plan)?;
        Ok(Box::new(instance))
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn controls(&self, limits: &Limits) -> Controls {
        self.controls_for(&SessionConfig {
            limits: limits.clone(),
            ..SessionConfig::default()
        })
    }

    fn controls_for(&self, config: &SessionConfig) -> Controls {
        // One that is not there is refused before anything is made of it.
        match self.runtime(config.runtime.as_deref()) {
            Ok(runtime) => limits::controls(&self.facts, &runtime, config),
            Err(_) => Controls::default(),
        }
    }

    fn admit(&self, config: &SessionConfig) -> Result<()> {
        let refuse = |problem: &str| {
            Err(Error::InvalidConfig {
                what: "config",
                problem: problem.into(),
            })
        };
        if config.rootfs.is_some() {
            return refuse(
                "the docker backend has no use for a root file system; give an image (--image)",
            );
        }
        if config.python.is_some() {
            return refuse(
                "the docker backend has no use for a Python of the host; give an image that has it (--image)",
            );
        }
        if let Some(image) = &config.image {
            image::check(image)?;
        }
        self.runtime(config.runtime.as_deref()).map(drop)
    }

    fn copies_layers(&self) -> bool {
        true
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        let runtime = self.runtime(plan.runtime())?;
        let image = image::resolve(&self.engine, plan.image(), self.progress.as_ref()).await?;
        let lists = self.lists(plan, &image).await?;
        let denied = lists.as_ref().and_then(Lists::denied).cloned();
        let container = self.leftovers.name();
        let started = self.start(&container, plan, &runtime, &image, denied.as_ref());
        let started = started.await;
        let (stream, words) = match started {
            Ok(started) => started,
            Err(error) => {
                // Why it did not start says more than what became of the rest.
                let _ = container.remove().await;
                return Err(error);
            }
        };
        if self.swept.set(()).is_ok() {
            // What others left is no reason to fail.
            let _ = self.sweep().await;
        }
        let hello = Hello {
            version: VERSION,
            confine: limits::confine(&runtime, self.engine.is_local(), plan),
            place: Place::Container(Container {
                mounts: mounts::expected(&runtime, plan),
                doors: network::plan(plan),
                denied,
            }),
            workspace: WORKSPACE.into(),
        };
        let mut env = programs::variables(&image, plan);
        env.extend(brig_sandbox::doors::env(plan));
        let instance = GuestInstance::start(
            DockerGuard::new(container, words, plan, &runtime),
            stream,
            hello,
            plan.limits().clone(),
            Interpreters::default(),
            env,
        )
        .await?;
        self.furnish(instance, plan, &image, lists).await
    }

    async fn sweep(&self) -> Result<usize> {
        let own = self.leftovers.clear().await?;
        let others = sweep::containers(&self.engine).await?;
        sweep::images(&self.engine).await?;
        Ok(own + others)
    }
}
