//! The one [`Instance`] of every backend with a Linux userland: it speaks to the guest over a
//! duplex stream. A backend only starts the guest and guards its limits.

mod connection;
mod execution;
mod files;
mod inbox;
mod language;
mod outgoing;
mod shadow;
mod unasked;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use brig_egress::Rules;
use brig_wire::{FromGuest, Hello, Place, ToGuest, Tree, Usage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::backend::{ExecIo, FileEntry, Permit};
use crate::network::Network;
use crate::{Attempts, Error, ExecRequest, Instance, KillReason, Limits, Outcome, Result};

pub use connection::{Connection, Stream};
pub use language::{CALLER, Interpreters, as_given};
use shadow::Shadow;
use unasked::Listening;
pub use unasked::{Judge, Unasked};

/// How long a guest may take to build its place, on a machine however busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the counters of an instance stood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// Processes that were killed for want of memory.
    pub memory_kills: u64,
    /// Processes that were refused.
    pub refused: u64,
}

/// What a backend does for its running guest.
#[async_trait]
pub trait Guard: Send + Sync + std::fmt::Debug {
    /// Where a guest in a container tells what is used.
    fn hears(&self, _usage: watch::Receiver<Usage>) {}

    /// The guest is ready: take what it hands out beside the stream.
    fn ready(&self) -> Result<()>;

    /// Why the guest never spoke, if that is known.
    fn start_failure(&self) -> Option<Error>;

    /// An execution is about to begin, and its attempts are to be told here.
    fn begins(&self, _id: u32, _attempts: &Arc<Attempts>) {}

    /// An execution is over: nothing may be told of it any more.
    fn ends(&self, _id: u32) {}

    /// The counters of the whole instance as an execution begins.
    fn mark(&self) -> Mark;

    /// Resolves when a limit of the whole instance was broken since then: whatever runs must end.
    async fn breach(&self, since: Mark) -> KillReason;

    /// Asked when an execution failed although nobody here ended it, or the guest is gone.
    fn verdict(&self, since: Mark) -> Option<KillReason>;

    /// The most memory the instance has used as a whole, where that is known.
    fn peak_memory(&self) -> Option<u64>;

    /// Counts that peak anew from here on, if it can.
    fn forget_peak(&self) -> bool;

    /// The most bytes that a file of the workspace can have. A guest that sends more lies.
    fn largest_file(&self) -> u64;

    fn process_id(&self) -> Option<u32>;

    /// See [`Instance::save`].
    async fn save(&self, into: &Path) -> Result<()>;

    /// Ends every process of the instance at once, without the guest's help.
    fn kill(&self);

    /// Waits for the end of it and frees what it held.
    async fn release(&self) -> Result<()>;
}

/// A running guest.
#[derive(Debug)]
pub struct GuestInstance<G> {
    guard: G,
    connection: Arc<Connection>,
    limits: Limits,
    interpreters: Interpreters,
    /// The environment of every program, before what an execution adds.
    env: Vec<(String, String)>,
    workspace: String,
    network: Option<Network>,
    /// Executions that are under way.
    running: AtomicUsize,
    /// A folder that comes first in `PATH`, whatever it is set to.
    first_in_path: Option<String>,
    /// Whether somebody looks at what is started.
    watched: bool,
    /// Where files are copied out to, if they can't be reached from outside.
    shadow: Option<Shadow>,
    listening: Option<Listening>,
    base: Option<String>,
}

impl<G: Guard> GuestInstance<G> {
    /// With a way out.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Whose files can't be reached from outside: the tree begins with what is in `layer`, and is
    /// copied out to be saved.
    pub async fn with_copied_files(
        mut self,
        tree: Tree,
        layer: Option<&Path>,
        most_bytes: u64,
    ) -> Result<Self> {
        if let Some(layer) = layer {
            shadow::fill(&self.connection, tree, layer).await?;
        }
        self.shadow = Some(Shadow::new(tree, most_bytes));
        Ok(self)
    }

    /// Whose files are changes of this image.
    #[must_use]
    pub fn with_base(mut self, image: &str) -> Self {
        self.base = Some(image.to_owned());
        self
    }

    /// Whose guest tells of visitors and of commands.
    pub fn with_unasked(mut self, unasked: Unasked) -> Result<Self> {
        let listening = Listening::start(&self.connection, unasked)?;
        self.network = listening.network().cloned();
        self.listening = Some(listening);
        Ok(self)
    }

    /// Where these programs are, by the folders of `PATH`.
    pub async fn find(&self, names: &[&str], path: &str) -> Result<Vec<Option<String>>> {
        files::find(&self.connection, names, path).await
    }

    pub fn set_interpreters(&mut self, interpreters: Interpreters) {
        self.interpreters = interpreters;
    }

    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// Greets the guest and waits until it is ready. On an error the guest is gone.
    pub async fn start(
        guard: G,
        stream: Stream,
        hello: Hello,
        limits: Limits,
        interpreters: Interpreters,
        env: Vec<(String, String)>,
    ) -> Result<Self> {
        let workspace = hello.workspace.clone();
        let first_in_path = match &hello.place {
            Place::Own(setup) => &setup.denied,
            Place::Container(container) => &container.denied,
        };
        let first_in_path = first_in_path.as_ref().map(|denied| denied.folder.clone());
        let watched = !hello.confine.notify.is_empty();
        let connection = Arc::new(Connection::start(stream));
        guard.hears(connection.usage());
        let ready = timeout(PATIENCE, async {
            connection.send(&ToGuest::Hello(Box::new(hello)))?;
            connection.greeting().await
        });
        let failed = match ready.await {
            Err(_) => Error::Setup {
                step: "start the guest".into(),
                problem: format!("no answer within {} seconds", PATIENCE.as_secs()),
            },
            Ok(Ok(FromGuest::Ready { .. })) => match guard.ready() {
                Ok(()) => {
                    return Ok(Self {
                        guard,
                        connection,
                        limits,
                        interpreters,
                        env,
                        workspace,
                        network: None,
                        running: AtomicUsize::new(0),
                        first_in_path,
                        watched,
                        shadow: None,
                        listening: None,
                        base: None,
                    });
                }
                Err(error) => error,
            },
            Ok(Ok(FromGuest::SetupFailed { step, errno })) => Error::Setup {
                step,
                problem: std::io::Error::from_raw_os_error(errno).to_string(),
            },
            Ok(Ok(_)) => Error::Protocol("unexpected greeting".into()),
            Ok(Err(error)) => guard.start_failure().unwrap_or(error),
        };
        guard.kill();
        // Why it did not start says more than what became of the rest.
        let _ = guard.release().await;
        Err(failed)
    }

    /// The guest is gone or does not behave: make sure of it, and say why.
    fn lost(&self, error: Error) -> Error {
        self.guard.kill();
        error
    }
}

#[async_trait]
impl<G: Guard> Instance for GuestInstance<G> {
    async fn execute(&self, permit: Permit, request: ExecRequest, io: ExecIo) -> Result<Outcome> {
        execution::run(self, &permit, request, io).await
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

    async fn save(&self, into: &Path) -> Result<()> {
        match &self.shadow {
            Some(shadow) => shadow.save(&self.connection, into).await,
            None => self.guard.save(into).await,
        }
    }

    fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    fn process_id(&self) -> Option<u32> {
        self.guard.process_id()
    }

    fn is_alive(&self) -> bool {
        self.connection.is_open()
    }

    fn network(&self) -> Option<&Rules> {
        self.network.as_ref().map(Network::rules)
    }

    async fn destroy(&self) -> Result<()> {
        self.guard.kill();
        self.guard.release().await
    }
}
