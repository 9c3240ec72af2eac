use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::ContainerCreateBody;
use brig_sandbox::link::{GuestInstance, Interpreters};
use brig_sandbox::{
    Backend, Controls, Error, Finding, Instance, Limits, Plan, Result, SessionConfig,
};
use brig_wire::{Container, Hello, Place, Tree, VERSION};

use crate::address::{Address, Environment};
use crate::apparmor::{self, Kernel};
use crate::commands::Lists;
use crate::engine::{Engine, Facts, PATIENCE};
use crate::guard::DockerGuard;
use crate::hardening::{self, Parts};
use crate::image::Image;
use crate::leftovers::Leftovers;
use crate::mounts::WORKSPACE;
use crate::outline::Outlines;
use crate::owner::Owner;
use crate::pool::{Pool, Started};
use crate::runtime::{Kind, Runtime};
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
    /// What sessions get that name neither.
    pub image: Option<String>,
    pub runtime: Option<String>,
    /// Containers that are kept ready of each kind that was used. They cost memory while they wait.
    pub warm: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            patience: PATIENCE,
            progress: None,
            image: None,
            runtime: None,
            warm: 0,
        }
    }
}

/// Sandboxes in containers of an engine.
#[derive(Debug)]
pub struct DockerBackend {
    engine: Engine,
    facts: Facts,
    progress: Option<Progress>,
    image: Option<String>,
    usual_runtime: Option<String>,
    pool: Pool,
    leftovers: Leftovers,
    /// One image is prepared at a time.
    preparing: tokio::sync::Mutex<()>,
    known: programs::Known,
    outlines: Outlines,
    /// The means to load profiles, or what that would take.
    armor: std::result::Result<Kernel, &'static str>,
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
            armor: apparmor::usable(&facts, engine.is_local()),
            engine,
            facts,
            progress: options.progress,
            image: options.image,
            usual_runtime: options.runtime,
            pool: Pool::of(options.warm),
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
            armor: Err("an engine"),
            engine,
            facts,
            progress: None,
            image: None,
            usual_runtime: None,
            pool: Pool::default(),
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
        Runtime::choose(&self.facts, asked.or(self.usual_runtime.as_deref()))
    }

    /// What the container of a plan is made of.
    async fn body(
        &self,
        plan: &Plan,
        runtime: &Runtime,
        image: &Image,
        lists: Option<&Lists>,
    ) -> Result<ContainerCreateBody> {
        let engine = &self.engine;
        let derived = {
            let _alone = self.preparing.lock().await;
            let denied = lists.and_then(Lists::denied);
            derived::ensure(engine, image, denied, &self.leftovers).await?
        };
        hardening::body(Parts {
            plan,
            facts: &self.facts,
            runtime,
            image,
            derived: &derived,
            profile: lists.and_then(Lists::profile),
            labels: Owner::of_process().labels(),
            local: engine.is_local(),
        })
    }

    /// A container whose guest waits: one that did so already, or a new one.
    async fn started(&self, plan: &Plan, body: &ContainerCreateBody) -> Result<Started> {
        // What is mounted now may be something else when it is used.
        let shared = plan.workspace().is_some() || !plan.mounts().is_empty();
        let warm = if shared { None } else { self.pool.take(body) };
        let started = match warm {
            Some(warm) => warm,
            None => Started::launch(&self.engine, &self.leftovers, body.clone()).await?,
        };
        if !shared {
            self.pool.refill(&self.engine, &self.leftovers, body);
        }
        Ok(started)
    }

    async fn greet(
        &self,
        started: Started,
        plan: &Plan,
        runtime: &Runtime,
        hello: Hello,
        env: Vec<(String, String)>,
    ) -> Result<GuestInstance<DockerGuard>> {
        let guard = DockerGuard::new(started.name, started.words, plan, runtime);
        let limits = plan.limits().clone();
        GuestInstance::start(
            guard,
            started.stream,
            hello,
            limits,
            Interpreters::default(),
            env,
        )
        .await
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
            let mut tree = Tree::Workspace;
            if !plan.read_only_root() {
                tree = Tree::Root;
                instance = instance.with_base(&image.id);
            }
            instance = instance.with_copied_files(tree, layer, limit).await?;
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
            Ok(runtime) => {
                let armor = self.armor.as_ref().map(drop).map_err(|wanted| *wanted);
                limits::controls(&self.facts, &runtime, armor, config)
            }
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
        let image = plan.image().or(self.image.as_deref());
        let image = image::resolve(&self.engine, image, self.progress.as_ref()).await?;
        let mut lists = self.lists(plan, &image).await?;
        if let (Some(lists), Ok(kernel), Kind::Plain) = (&mut lists, &self.armor, runtime.kind) {
            lists.hold(kernel, limits::writable(plan)).await?;
        }
        let denied = lists.as_ref().and_then(Lists::denied).cloned();
        let body = self.body(plan, &runtime, &image, lists.as_ref()).await?;
        let started = self.started(plan, &body).await?;
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
                own_kernel: runtime.kind != Kind::Plain,
            }),
            workspace: WORKSPACE.into(),
        };
        let mut env = programs::variables(&image, plan);
        env.extend(brig_sandbox::doors::env(plan));
        let warm = started.warm;
        let greeted = self.greet(started, plan, &runtime, hello.clone(), env.clone());
        let instance = match greeted.await {
            // One that waited too long: nothing has run in it.
            Err(_) if warm => {
                let fresh = Started::launch(&self.engine, &self.leftovers, body).await?;
                self.greet(fresh, plan, &runtime, hello, env).await?
            }
            greeted => greeted?,
        };
        self.furnish(instance, plan, &image, lists).await
    }

    async fn sweep(&self) -> Result<usize> {
        let own = self.leftovers.clear().await?;
        let others = sweep::containers(&self.engine).await?;
        sweep::images(&self.engine).await?;
        if let Ok(kernel) = &self.armor {
            sweep::profiles(&self.engine, kernel).await?;
        }
        Ok(own + others)
    }
}
