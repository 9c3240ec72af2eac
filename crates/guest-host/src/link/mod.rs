//! The [`Instance`] of every backend with a Linux userland: it controls the guest over a duplex stream.
//! A backend only starts the guest and enforces its limits.

mod connection;
mod execution;
mod file_copy;
mod files;
mod inbox;
mod language;
mod notifications;
mod outgoing;
mod writers;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use brig_egress::{Layer, RuleSet, Rules};
use brig_sandbox::backend::{FileEntry, Options, Permit, Saved};
use brig_sandbox::{Attempts, Error, Execution, Instance, KillReason, Limits, Outcome, Result};
use brig_transfer::Cached;
use brig_wire::{FromGuest, Hello, KernelIdentity, RootSource, ToGuest, Tree, Usage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::network::Network;
use crate::tools::ToolServer;

pub use connection::{Connection, Stream};
pub use file_copy::CheckedFiles;
use file_copy::FileCopy;
pub use language::{CALLER, Interpreters, as_given};
use notifications::NotificationServer;
pub use notifications::{CommandObserver, Notifications};
use writers::Writers;
pub use writers::Written;

/// How long a guest may take to set up the sandbox, also on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a guest in a container is told that its owner is there, while it would wait for that once.
const HEARTBEATS: u32 = 6;

/// Counters of an instance at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// Processes that the OOM killer ended.
    pub memory_kills: u64,
    /// Forks that failed at the limit of processes.
    pub refused: u64,
}

/// What a backend does for its running guest.
#[async_trait]
pub trait Guard: Send + Sync + std::fmt::Debug {
    /// Where a guest in a container reports its usage.
    fn watch_usage(&self, _usage: watch::Receiver<Usage>) {}

    /// The guest is ready: take the descriptors that it has handed out, and check the kernel that it runs
    /// on, which only a guest in a container tells.
    fn ready(&self, kernel: Option<&KernelIdentity>) -> Result<()>;

    /// Why the guest never answered, if that is known.
    fn start_failure(&self) -> Option<Error>;

    /// An execution is about to start. Its attempts are recorded here.
    fn begins(&self, _id: u32, _attempts: &Arc<Attempts>) {}

    /// An execution is over: nothing more may be recorded for it.
    fn ends(&self, _id: u32) {}

    /// The counters of the whole instance when an execution starts.
    fn mark(&self) -> Mark;

    /// Resolves when a limit of the whole instance was exceeded since then: everything must end.
    async fn breach(&self, since: Mark) -> KillReason;

    /// Called when an execution failed although it was not killed here.
    fn verdict(&self, since: Mark) -> Option<KillReason>;

    /// The same for a guest that has exited, where that may take a while to find out.
    async fn loss(&self, since: Mark) -> Option<KillReason> {
        self.verdict(since)
    }

    /// The peak memory of the whole instance, if it is known.
    fn peak_memory(&self) -> Option<u64>;

    /// The CPU time of all its processes, if it is known more exactly than by the guest's `wait4`. It only
    /// grows.
    fn cpu_time(&self) -> Option<Duration> {
        None
    }

    /// How many processors it can use, if its kernel also counts the time in which a program waits for one.
    fn most_cpus(&self) -> Option<f64> {
        None
    }

    /// Resets that peak, if it can.
    fn forget_peak(&self) -> bool;

    /// The largest possible file of the workspace. A guest that sends more breaks the protocol.
    fn largest_file(&self) -> u64;

    fn process_id(&self) -> Option<u32>;

    /// See [`Instance::runtime`].
    fn runtime(&self) -> Option<&str> {
        None
    }

    /// See [`Instance::save`].
    async fn save(&self, into: &Path, written: Written) -> Result<()>;

    /// Kills every process of the instance at once, without the guest's help.
    fn kill(&self);

    /// Waits for its end and frees its resources.
    async fn release(&self) -> Result<()>;
}

/// A running guest.
#[derive(Debug)]
pub struct GuestInstance<G> {
    guard: G,
    connection: Arc<Connection>,
    limits: Limits,
    interpreters: Interpreters,
    /// The environment of every program, without the variables of an execution.
    env: Vec<(String, String)>,
    workspace: String,
    /// Where commands start that say nothing about it, if they can enter it.
    start_in: Option<String>,
    network: Option<Network>,
    /// The number of running executions, and of all executions so far.
    running: AtomicUsize,
    joined: AtomicUsize,
    writers: Writers,
    /// A directory that comes first in every `PATH`.
    first_in_path: Option<String>,
    /// Whether starts of programs are watched.
    watched: bool,
    /// The copy of its files, if the host can't access them.
    file_copy: Option<FileCopy>,
    notifications: Option<NotificationServer>,
    tools: Option<ToolServer>,
    pinned: Options,
}

impl<G: Guard> GuestInstance<G> {
    /// With a network.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Fills a tree with a copy of a host directory, of which the guest has some files already. Returns which of
    /// them are as they should be, with the time of their last change, or `None` if one is not.
    pub async fn fill(
        &self,
        tree: Tree,
        from: Option<&Path>,
        cached: Cached,
    ) -> Result<Option<CheckedFiles>> {
        match from {
            Some(from) => file_copy::fill(&self.connection, tree, from, cached).await,
            None => Ok(Some(CheckedFiles::new())),
        }
    }

    /// With files that the host can't access, and that are copied out to be saved. `layer`: what it was filled with.
    #[must_use]
    pub fn with_copied_files(mut self, tree: Tree, layer: Option<&Path>, most_bytes: u64) -> Self {
        self.file_copy = Some(FileCopy::new(tree, most_bytes, layer));
        self.writers = Writers::of_a_copy();
        self
    }

    /// Whose commands start in this directory, if they can enter it, and not in the workspace.
    #[must_use]
    pub fn with_start_in(mut self, directory: Option<String>) -> Self {
        self.start_in = directory;
        self
    }

    /// Whose files depend on these options: [`Instance::pinned`].
    #[must_use]
    pub fn with_pinned(mut self, pinned: Options) -> Self {
        self.pinned = pinned;
        self
    }

    /// With a guest that relays connections and reports commands.
    pub fn with_notifications(mut self, notifications: Notifications) -> Result<Self> {
        let server = NotificationServer::start(&self.connection, notifications)?;
        self.network = server.network().cloned();
        self.notifications = Some(server);
        Ok(self)
    }

    /// With tools, and what programs call them with. `program`: what calls them for other languages than
    /// Python, if it is not in the sandbox already.
    pub async fn with_tools(
        mut self,
        tools: Option<ToolServer>,
        program: Option<&[u8]>,
    ) -> Result<Self> {
        let files = tools.iter().flat_map(ToolServer::files);
        let program = program.map(|program| ("tools/bin/brig-tool", 0o555, program));
        for (path, mode, content) in files.chain(program) {
            let base = brig_wire::Base::Run;
            files::put(&self.connection, base, path, mode, &mut &*content).await?;
        }
        self.tools = tools;
        Ok(self)
    }

    /// Where these programs are, by the directories of `PATH`.
    pub async fn find(&self, names: &[&str], path: &str) -> Result<Vec<Option<String>>> {
        files::find(&self.connection, names, path).await
    }

    pub fn set_interpreters(&mut self, interpreters: Interpreters) {
        self.interpreters = interpreters;
    }

    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// Sends the setup and waits until the guest is ready. On an error the guest has exited.
    pub async fn start(
        guard: G,
        stream: Stream,
        hello: Hello,
        limits: Limits,
        interpreters: Interpreters,
        env: Vec<(String, String)>,
    ) -> Result<Self> {
        let workspace = hello.workspace.clone();
        let first_in_path = match &hello.root {
            RootSource::Setup(setup) => &setup.denied,
            RootSource::Container(container) => &container.denied,
        };
        let first_in_path = first_in_path
            .as_ref()
            .map(|denied| denied.directory.clone());
        let watched = hello.confine.watches_commands;
        let container = match &hello.root {
            RootSource::Setup(_) => None,
            RootSource::Container(container) => Some(container),
        };
        let seal = container.map(|container| container.seal);
        let connection = Arc::new(Connection::start(stream, seal));
        if let Some(container) = container {
            connection.start_heartbeat(container.max_silence / HEARTBEATS);
        }
        guard.watch_usage(connection.usage());
        let ready = timeout(START_TIMEOUT, async {
            connection.send(&ToGuest::Hello(Box::new(hello)))?;
            connection.handshake().await
        });
        let failed = match ready.await {
            Err(_) => Error::Setup {
                step: "start the guest".into(),
                problem: format!("no answer within {} seconds", START_TIMEOUT.as_secs()),
            },
            Ok(Ok(FromGuest::Ready { kernel, .. })) => match guard.ready(kernel.as_ref()) {
                Ok(()) => {
                    return Ok(Self {
                        guard,
                        connection,
                        limits,
                        interpreters,
                        env,
                        workspace,
                        start_in: None,
                        network: None,
                        running: AtomicUsize::new(0),
                        joined: AtomicUsize::new(0),
                        writers: Writers::default(),
                        first_in_path,
                        watched,
                        file_copy: None,
                        notifications: None,
                        tools: None,
                        pinned: Options::new(),
                    });
                }
                Err(error) => error,
            },
            Ok(Ok(FromGuest::SetupFailed { step, errno })) => Error::Setup {
                step,
                problem: std::io::Error::from_raw_os_error(errno).to_string(),
            },
            Ok(Ok(_)) => Error::Protocol("unexpected handshake".into()),
            Ok(Err(error)) => guard.start_failure().unwrap_or(error),
        };
        guard.kill();
        // The reason for the failed start is more useful than an error of the cleanup.
        let _ = guard.release().await;
        Err(failed)
    }

    fn rules(&self) -> Option<&Rules> {
        let open = self.network.as_ref().filter(|network| !network.is_closed());
        open.map(Network::rules)
    }

    /// The guest is gone or breaks the protocol: kill it, and return the reason.
    fn lost(&self, error: Error) -> Error {
        self.guard.kill();
        error
    }
}

#[async_trait]
impl<G: Guard> Instance for GuestInstance<G> {
    async fn execute(&self, permit: Permit, execution: Execution) -> Result<Outcome> {
        execution::run(self, &permit, execution).await
    }

    async fn put_file(
        &self,
        path: &str,
        mode: u32,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<u64> {
        files::put(
            &self.connection,
            brig_wire::Base::Workspace,
            path,
            mode,
            content,
        )
        .await
    }

    async fn get_file(
        &self,
        path: &str,
        into: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let most = self.guard.largest_file();
        files::get(&self.connection, path, into, most).await
    }

    async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        files::list(&self.connection, path).await
    }

    async fn save(&self, into: &Path) -> Result<Saved> {
        // A copy knows itself what was saved last, and where.
        let replaced = self.file_copy.is_none().then_some(into);
        let (written, clean) = self.writers.before_a_save(replaced);
        match &self.file_copy {
            Some(copy) => copy.save(&self.connection, into, written.by).await,
            None => self.guard.save(into, written).await,
        }?;
        self.writers.saved(clean, replaced);
        Ok(Saved::Directory)
    }

    fn pinned(&self) -> Options {
        self.pinned.clone()
    }

    fn process_id(&self) -> Option<u32> {
        self.guard.process_id()
    }

    fn runtime(&self) -> Option<&str> {
        self.guard.runtime()
    }

    fn is_alive(&self) -> bool {
        self.connection.is_open()
    }

    async fn network(&self) -> Result<Option<Arc<RuleSet>>> {
        Ok(self.rules().map(Rules::current))
    }

    async fn change_network(&self, layer: Layer) -> Result<()> {
        if let Some(rules) = self.rules() {
            rules.change(|layers| {
                layers.retain(|other| other.kind != layer.kind);
                layers.push(layer);
            });
        }
        Ok(())
    }

    async fn destroy(&self) -> Result<()> {
        self.guard.kill();
        self.guard.release().await
    }
}
