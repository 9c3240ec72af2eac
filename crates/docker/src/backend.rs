mod runtimes;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::ContainerCreateBody;
use brig_guest_host::link::{GuestInstance, Interpreters};
use brig_reason::ReasonCode;
use brig_sandbox::backend::{BackendKind, Setting, Unsupported};
use brig_sandbox::{
    Backend, BackendId, Capabilities, Error, Finding, HostPrograms, Instance, Plan, Result,
    SessionConfig, Unavailable,
};
use brig_wire::{Container, Hello, RootSource, Tree, VERSION};

use crate::address::{Address, Environment};
use crate::apparmor::{self, Kernel};
use crate::choice::BrokenRuntimes;
use crate::commands::Lists;
use crate::engine::{Engine, Facts, PATIENCE};
use crate::engine_files::EngineFiles;
use crate::file_cache::{self, FileCache};
use crate::guard::DockerGuard;
use crate::hardening::{self, Parts};
use crate::image::{Image, Requested};
use crate::image_defaults::{self, ReportedImages};
use crate::image_programs::ImageProgramsCache;
use crate::lookup::{self, LookupFiles};
use crate::mounts::{NonceFile, WORKSPACE};
use crate::options::{IMAGE, KIND, PLATFORM, RUNTIME};
use crate::owner::ContainerOwner;
use crate::pool::{Pool, StartedContainer};
use crate::proof::{self, ExpectedKernel};
use crate::removals::Removals;
use crate::runtime::{self, Kind, Runtime};
use crate::user::ContainerUser;
use crate::{derived, doctor, image, limits, mounts, network, programs, sweep};

/// Longer than this process is ever held up on a busy machine.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// Told of what takes long, a line at a time.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(&str) + Send + Sync>);

impl Progress {
    /// Calls this with each line.
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
    /// Its name in the user's configuration.
    pub id: BackendId,
    /// Where it is; without, what the environment says.
    pub address: Option<Address>,
    /// How long one request may take.
    pub patience: Duration,
    /// Where to report what takes long.
    pub progress: Option<Progress>,
    /// The image of sessions that name none.
    pub image: Option<String>,
    /// The runtime of sessions that name none.
    pub runtime: Option<String>,
    /// The platform of images of sessions that name none.
    pub platform: Option<String>,
    /// The directory with Docker's `config.json`, for the credentials of `docker login`; without, what the
    /// environment says.
    pub logins: Option<PathBuf>,
    /// Where `ssh` and credential helpers are looked for first. Without, or if they are not there, only in
    /// directories of `PATH` that no sandbox can write to.
    pub programs: Option<PathBuf>,
    /// How long a container waits for a sign of this process before it ends by itself.
    pub max_silence: Duration,
    /// Containers that are kept ready of each kind that was used. They cost memory while they wait.
    pub warm: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            id: BackendId::of(KIND.name),
            address: None,
            patience: PATIENCE,
            progress: None,
            image: None,
            runtime: None,
            platform: None,
            logins: None,
            programs: None,
            max_silence: MAX_SILENCE,
            warm: 0,
        }
    }
}

/// Sandboxes in containers of an engine.
#[derive(Debug)]
pub struct DockerBackend {
    id: BackendId,
    engine: Engine,
    facts: Facts,
    progress: Option<Progress>,
    image: Option<String>,
    usual_runtime: Option<String>,
    platform: Option<String>,
    logins: Option<PathBuf>,
    programs: HostPrograms,
    broken: BrokenRuntimes,
    max_silence: Duration,
    pool: Pool,
    removals: Removals,
    /// One image is prepared at a time.
    preparing: tokio::sync::Mutex<()>,
    lookup: LookupFiles,
    known: programs::KnownInterpreters,
    engine_files: EngineFiles,
    image_programs_cache: ImageProgramsCache,
    reported: ReportedImages,
    /// The means to load profiles, or what that would take.
    armor: std::result::Result<Kernel, &'static str>,
    swept: OnceLock<()>,
}

impl DockerBackend {
    /// Connects to the engine and asks what it can do.
    pub async fn connect(options: Options) -> Result<Self> {
        let address = match options.address {
            Some(address) => address,
            None => Address::find(&Environment::of_process())?,
        };
        let programs = HostPrograms::of_path().first_in(options.programs);
        let (engine, facts) = Engine::connect(address, options.patience, &programs).await?;
        if !facts.architecture.is_empty() && !image::is_ours(&facts.architecture) {
            return Err(Error::Unavailable {
                backend: options.id,
                cause: Unavailable::new(format!(
                    "the engine's CPU architecture is {}, and the guest is built for {}",
                    facts.architecture,
                    std::env::consts::ARCH
                )),
            });
        }
        Ok(Self {
            removals: Removals::new(engine.clone()),
            armor: apparmor::usable(&facts, engine.is_local()),
            id: options.id,
            engine,
            facts,
            progress: options.progress,
            image: options.image,
            usual_runtime: options.runtime,
            platform: options.platform,
            logins: options.logins.or_else(|| Environment::of_process().config),
            programs,
            broken: BrokenRuntimes::default(),
            max_silence: options.max_silence,
            pool: Pool::of(options.warm),
            preparing: tokio::sync::Mutex::default(),
            lookup: LookupFiles::default(),
            known: programs::KnownInterpreters::default(),
            engine_files: EngineFiles::default(),
            image_programs_cache: ImageProgramsCache::default(),
            reported: ReportedImages::default(),
            swept: OnceLock::new(),
        })
    }

    #[cfg(test)]
    pub(crate) fn of_facts(facts: Facts) -> Self {
        let docker = bollard::Docker::connect_with_http(
            "tcp://127.0.0.1:1",
            1,
            bollard::API_DEFAULT_VERSION,
        );
        let engine = Engine::absent(docker.expect("a client"));
        Self {
            removals: Removals::new(engine.clone()),
            armor: Err("an engine"),
            id: BackendId::of(KIND.name),
            engine,
            facts,
            progress: None,
            image: None,
            usual_runtime: None,
            platform: None,
            logins: None,
            programs: HostPrograms::default(),
            broken: BrokenRuntimes::default(),
            max_silence: MAX_SILENCE,
            pool: Pool::default(),
            preparing: tokio::sync::Mutex::default(),
            lookup: LookupFiles::default(),
            known: programs::KnownInterpreters::default(),
            engine_files: EngineFiles::default(),
            image_programs_cache: ImageProgramsCache::default(),
            reported: ReportedImages::default(),
            swept: OnceLock::new(),
        }
    }

    /// What the plan says about commands; nothing if it says nothing, and then nothing is watched.
    async fn lists(&self, plan: &Plan, image: &Image) -> Result<Option<Lists>> {
        if !plan.watches_commands() {
            return Ok(None);
        }
        let programs = self
            .image_programs_cache
            .of(image, &self.engine, &self.removals, plan.state())
            .await?;
        Lists::read(plan, image, &programs).map(Some)
    }

    /// What the container of a plan is made of.
    async fn body(
        &self,
        plan: &Plan,
        runtime: &Runtime,
        image: &Image,
        lists: Option<&Lists>,
        nonce: Option<&NonceFile>,
        cache: Option<&FileCache>,
    ) -> Result<ContainerCreateBody> {
        let engine = &self.engine;
        let derived = {
            let _alone = self.preparing.lock().await;
            let denied = lists.and_then(Lists::denied);
            derived::ensure(engine, image, denied).await?
        };
        let user = ContainerUser::of(plan, &self.facts, runtime, engine.user(), image);
        self.reported
            .report(self.progress.as_ref(), plan, image, &user);
        let lookup = self.lookup.directory(engine, &self.facts, &derived).await?;
        hardening::body(Parts {
            plan,
            facts: &self.facts,
            runtime,
            image,
            user,
            derived: &derived,
            profile: lists.and_then(Lists::profile),
            labels: ContainerOwner::of_process().labels(),
            local: engine.is_local(),
            nonce: nonce.map(NonceFile::path),
            engine_files: self.engine_files()?,
            lookup: lookup.as_deref(),
            cache: cache.map(FileCache::volume),
        })
    }

    /// For an engine that needs them. It has to have the files of this machine.
    fn engine_files(&self) -> Result<Option<&Path>> {
        let differences = self.facts.product.differences();
        if !differences.needs_files {
            return Ok(None);
        }
        if !self.engine.is_local() {
            return Err(Error::Engine {
                code: ReasonCode::EngineUnreachable,
                step: format!("use {} at {}", differences.name, self.engine.address),
                problem: "it is on another machine, and reads the seccomp profile from a file"
                    .into(),
                hint: Some("use Podman on this machine, or Docker".into()),
            });
        }
        self.engine_files.directory().map(Some)
    }

    /// A container whose guest waits: one that did so already, or a new one.
    async fn started(
        &self,
        plan: &Plan,
        body: &ContainerCreateBody,
        cache: Option<&FileCache>,
    ) -> Result<StartedContainer> {
        // What is mounted now may be something else when it is used.
        let shared = plan.workspace().is_some() || !plan.mounts().is_empty() || cache.is_some();
        let warm = if shared { None } else { self.pool.take(body) };
        let started = match warm {
            Some(warm) => warm,
            None => self.launch(body).await?,
        };
        if !shared {
            self.pool.refill(&self.engine, &self.removals, body);
        }
        Ok(started)
    }

    /// A new container.
    async fn launch(&self, body: &ContainerCreateBody) -> Result<StartedContainer> {
        let launch = |body| StartedContainer::launch(&self.engine, &self.removals, body);
        match launch(body.clone()).await {
            // Nothing has run in it.
            Err(error) if runtime::died_at_its_start(&error) => return launch(body.clone()).await,
            Err(error) if lookup::concerns(body, &error) => {}
            launched => return launched,
        }
        let image = body.image.as_deref().unwrap_or_default();
        self.lookup.repair(&self.engine, image).await?;
        match launch(body.clone()).await {
            Err(error) if lookup::concerns(body, &error) => {
                self.lookup.give_up().await;
                launch(lookup::without(body)).await
            }
            launched => launched,
        }
    }

    async fn handshake(
        &self,
        started: StartedContainer,
        plan: &Plan,
        runtime: &Runtime,
        hello: Hello,
        env: Vec<(String, String)>,
    ) -> Result<GuestInstance<DockerGuard>> {
        let plain = runtime.kind == Kind::Plain;
        proof::check_read_back(&runtime.name, plain, started.runtime.as_deref())?;
        let kernel = ExpectedKernel::new(runtime, &self.facts);
        let guard = DockerGuard::new(
            started.name,
            started.words,
            plan,
            runtime,
            kernel,
            &self.facts,
        );
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
    /// What a guest that is ready still lacks. On an error its container goes with it. `None` if the cache is not
    /// what it should be.
    async fn finish_setup(
        &self,
        mut instance: GuestInstance<DockerGuard>,
        plan: &Plan,
        image: &Image,
        lists: Option<Lists>,
        cache: Option<&mut FileCache>,
    ) -> Result<Option<Box<dyn Instance>>> {
        let notifications = network::serve(plan, lists);
        let tools = notifications.tools.clone();
        instance = instance.with_notifications(notifications)?;
        instance = instance.with_tools(tools, None).await?;
        let interpreters = self.known.interpreters(image, &instance).await?;
        instance.set_interpreters(interpreters);
        instance = instance.with_start_in(image_defaults::start_in(plan, image));
        if plan.workspace().is_none() {
            let layer = plan.initial().directories().first().map(PathBuf::as_path);
            let limit = plan.limits().disk_bytes.value;
            let mut tree = Tree::Workspace;
            if !plan.read_only_root() {
                tree = Tree::Root;
                instance = instance.with_pinned(BTreeMap::from([(IMAGE.into(), image.id.clone())]));
            }
            let cached = cache.as_ref().map(|cache| cache.files());
            let filled = instance
                .fill(tree, layer, cached.unwrap_or_default())
                .await?;
            let Some(checked) = filled else {
                instance.destroy().await?;
                return Ok(None);
            };
            if let Some(cache) = cache {
                cache.checked(&checked);
            }
            instance = instance.with_copied_files(tree, layer, limit);
        }
        mounts::verify_unchanged(plan)?;
        Ok(Some(Box::new(instance)))
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn id(&self) -> &BackendId {
        &self.id
    }

    fn kind(&self) -> &'static BackendKind {
        &KIND
    }

    async fn probe(&self, config: &SessionConfig) -> Result<Capabilities, Unavailable> {
        self.programs.check(config)?;
        let mut chosen = brig_sandbox::backend::Options::new();
        let mut notes = Vec::new();
        let runtime = match self.named(config.options.get(RUNTIME).map(String::as_str))? {
            Some(runtime) => runtime,
            None => {
                let choice = self.choose(config)?;
                notes.extend(choice.note);
                chosen.insert(RUNTIME.into(), choice.runtime.name.clone());
                choice.runtime
            }
        };
        let controls = self.controls(&runtime, config);
        let mut capabilities = Capabilities::new(controls);
        capabilities.chosen = chosen;
        capabilities.notes = notes;
        capabilities.most_hidden = match runtime.kind {
            Kind::Plain => 1000,
            // gVisor does not start with 240 files that are mounted.
            Kind::Gvisor | Kind::Kata => 100,
        };
        capabilities.unsupported = vec![
            Unsupported {
                setting: Setting::Rootfs,
                instead: "use an image (--image)",
            },
            Unsupported {
                setting: Setting::Python,
                instead: "use an image that contains it (--image)",
            },
        ];
        Ok(capabilities)
    }

    /// What the engine is and has, good or missing.
    async fn findings(&self, _state: Option<&Path>) -> Vec<Finding> {
        let broken = self.try_all().await;
        let chosen = self.choose(&SessionConfig::default());
        let chosen = chosen.map_or_else(|_| "none".into(), |choice| choice.runtime.name);
        doctor::findings(&self.engine, &self.facts, &chosen, &broken)
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        let runtime = self.planned(plan)?;
        let created = self.create_on(plan, &runtime).await;
        if let Err(error) = &created {
            self.learn(plan, &runtime, error).await;
        }
        created
    }

    async fn sweep(&self) -> Result<usize> {
        let own = self.removals.clear().await?;
        let others = sweep::containers(&self.engine).await?;
        sweep::images(&self.engine).await?;
        lookup::sweep(&self.engine).await?;
        file_cache::sweep(&self.engine).await?;
        if let Ok(kernel) = &self.armor {
            sweep::profiles(&self.engine, kernel).await?;
        }
        Ok(own + others)
    }

    async fn forget(&self, session: &Path) {
        file_cache::forget(&self.engine, session).await;
    }
}

impl DockerBackend {
    async fn create_on(&self, plan: &Plan, runtime: &Runtime) -> Result<Box<dyn Instance>> {
        if let Some(instance) = self.try_create(plan, runtime, true).await? {
            return Ok(instance);
        }
        let created = self.try_create(plan, runtime, false).await?;
        created.ok_or_else(|| Error::Protocol("files are missing that were sent".into()))
    }

    /// The volume with files of the session. Not for a whole root, where what a file becomes depends on the image.
    async fn file_cache(&self, plan: &Plan, image: &Image) -> Option<FileCache> {
        let files = plan.initial().directories().first()?;
        if plan.workspace().is_some() || !plan.read_only_root() {
            return None;
        }
        FileCache::prepare(&self.engine, &image.id, files).await
    }

    /// `None` if the cache was not what it should be. It is gone then.
    async fn try_create(
        &self,
        plan: &Plan,
        runtime: &Runtime,
        with_cache: bool,
    ) -> Result<Option<Box<dyn Instance>>> {
        let image = Requested {
            name: plan.option(IMAGE).or(self.image.as_deref()),
            platform: plan.option(PLATFORM).or(self.platform.as_deref()),
            logins: self.logins.as_deref(),
            programs: &self.programs,
            progress: self.progress.as_ref(),
        };
        let image = image.resolve(&self.engine).await?;
        let mut lists = self.lists(plan, &image).await?;
        if let (Some(lists), Ok(kernel), Kind::Plain) = (&mut lists, &self.armor, runtime.kind) {
            lists.enforce(kernel, limits::writable(plan)).await?;
        }
        let denied = lists.as_ref().and_then(Lists::denied).cloned();
        let nonce = NonceFile::of(plan)?;
        let mut cache = match with_cache {
            true => self.file_cache(plan, &image).await,
            false => None,
        };
        let (listed, mounted) = (lists.as_ref(), cache.as_ref());
        let body = self.body(plan, runtime, &image, listed, nonce.as_ref(), mounted);
        let body = body.await?;
        let started = self.started(plan, &body, cache.as_ref()).await?;
        if self.swept.set(()).is_ok() {
            // What others left is no reason to fail.
            let _ = self.sweep().await;
        }
        let hello = Hello {
            version: VERSION,
            confine: limits::confine(runtime, self.engine.is_local(), plan, denied.is_some()),
            root: RootSource::Container(Box::new(Container {
                mounts: mounts::expected(runtime, plan),
                listeners: network::plan(plan),
                denied,
                own_kernel: runtime.kind != Kind::Plain,
                own_group: runtime.kind != Kind::Plain || self.facts.has_groups(),
                pool: network::POOL.octets(),
                max_silence: self.max_silence,
                nonce: nonce.as_ref().map(NonceFile::expected),
                writable: mounts::writable(plan),
                cache: cache.as_ref().map(|_| file_cache::MOUNTED.to_owned()),
                seal: uuid::Uuid::new_v4().into_bytes(),
            })),
            workspace: WORKSPACE.into(),
        };
        let env = programs::variables(&image, plan);
        let warm = started.warm;
        let connected = self.handshake(started, plan, runtime, hello.clone(), env.clone());
        let instance = match connected.await {
            // One that waited too long: nothing has run in it.
            Err(_) if warm => {
                let fresh = self.launch(&body).await?;
                self.handshake(fresh, plan, runtime, hello, env).await?
            }
            connected => connected?,
        };
        let finished = self.finish_setup(instance, plan, &image, lists, cache.as_mut());
        let finished = finished.await?;
        if let (None, Some(cache)) = (&finished, cache) {
            cache.discard(&self.engine).await;
        }
        Ok(finished)
    }
}
