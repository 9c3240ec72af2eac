//! MCP servers as sources of tools.
//!
//! A server is started or connected to when it is registered, because its tools must be known before anything runs.
//! What it says is not trusted: names, schemas, sizes and times are checked.

mod http;
mod list;
mod process;
mod tool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brig_tools::{Tool, ToolName};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use tokio::sync::Mutex;

use crate::program::Program;
use crate::secrets::Secrets;
use crate::text::clean;
use crate::{Notify, SourceError};
use process::Process;
use tool::McpTool;

/// How long a server may take to start and to list its tools. The first start of some downloads them.
const START: Duration = Duration::from_secs(60);
/// How long a server may take to end by itself.
const END: Duration = Duration::from_millis(500);
/// The longest message about a server, in characters.
const MESSAGE: usize = 1000;

/// What of an MCP server is registered.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// For messages.
    pub name: String,
    /// How to reach it.
    pub endpoint: Endpoint,
    /// Its tools that are registered, and their names here. All of them if it is empty.
    pub tools: Vec<(String, ToolName)>,
    /// How long one call may take.
    pub timeout: Option<Duration>,
    /// How long it may take until its tools are known. `None`: a minute.
    pub start_timeout: Option<Duration>,
}

/// How to reach a server.
#[derive(Clone)]
pub enum Endpoint {
    /// A program that speaks MCP on its standard streams.
    Program(Program),
    /// A server with streamable HTTP.
    Url {
        /// `http` or `https`.
        url: String,
        /// Headers of every request, such as `Authorization`.
        headers: Vec<(String, String)>,
    },
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => f.debug_tuple("Program").field(program).finish(),
            // The values of headers are secrets.
            Self::Url { url, .. } => f
                .debug_struct("Url")
                .field("url", url)
                .finish_non_exhaustive(),
        }
    }
}

impl Endpoint {
    fn secrets(&self) -> Secrets {
        match self {
            Self::Program(program) => program.secrets(),
            Self::Url { headers, .. } => {
                Secrets::new(headers.iter().map(|(_, value)| value.clone()))
            }
        }
    }
}

type Client = RunningService<RoleClient, ClientConfig>;

/// A server whose tools are known.
#[derive(Debug)]
pub struct McpServer {
    connection: Arc<Connection>,
    tools: Vec<Arc<dyn Tool>>,
}

/// What all tools of a server share. When the last of them is dropped, the server ends.
struct Connection {
    name: String,
    client: Client,
    /// If we have started it.
    process: Option<Mutex<Process>>,
    secrets: Secrets,
    notify: Notify,
}

impl McpServer {
    /// Starts or reaches the server, and lists its tools.
    ///
    /// # Errors
    ///
    /// If it does not answer in time, breaks the protocol, or has tools that can't be registered.
    pub async fn connect(spec: ServerSpec, notify: Notify) -> Result<Self, SourceError> {
        let within = spec.start_timeout.unwrap_or(START);
        let connected = tokio::time::timeout(within, Self::start(&spec, notify)).await;
        connected.unwrap_or_else(|_| {
            Err(SourceError::ServerTimeout {
                server: spec.name.clone(),
                after: within,
            })
        })
    }

    async fn start(spec: &ServerSpec, notify: Notify) -> Result<Self, SourceError> {
        let (client, process) = match &spec.endpoint {
            Endpoint::Program(program) => {
                let (client, process) = process::connect(&spec.name, program).await?;
                (client, Some(Mutex::new(process)))
            }
            Endpoint::Url { url, headers } => {
                (http::connect(&spec.name, url, headers).await?, None)
            }
        };
        let connection = Arc::new(Connection {
            name: spec.name.clone(),
            client,
            process,
            secrets: spec.endpoint.secrets(),
            notify,
        });
        let offered = list::tools(&connection).await?;
        let chosen = list::choose(&spec.name, offered, &spec.tools)?;
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for tool in chosen {
            tools.push(Arc::new(McpTool::new(tool, spec.timeout, &connection)?));
        }
        Ok(Self { connection, tools })
    }

    /// Its tools that were chosen.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// Ends the connection, and the server if it was started for it. Returns when nothing of it is left.
    pub async fn close(self) {
        self.connection.client.cancellation_token().cancel();
        if let Some(process) = &self.connection.process {
            process.lock().await.end(END).await;
        }
    }
}

impl Connection {
    /// Allows the server to send some more.
    async fn expect_answer(&self) {
        if let Some(process) = &self.process {
            process.lock().await.expect_answer();
        }
    }

    fn error(&self, problem: &str) -> SourceError {
        failed(&self.name, problem)
    }

    /// Tells the operator that the server is gone, and its last words.
    async fn tell_lost(&self) {
        let last = match &self.process {
            Some(process) => process.lock().await.last_words().await,
            None => String::new(),
        };
        (self.notify)(&format!("MCP server `{}` is gone{last}", self.name));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn failed(server: &str, problem: &str) -> SourceError {
    SourceError::Server {
        server: server.into(),
        problem: clean(problem, MESSAGE),
    }
}

/// Who we are. No capability: a server can't ask for files, models or the user.
fn info() -> ClientConfig {
    let own = Implementation::new("brig", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), own)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// How to begin. Nearly all servers know the handshake; one that refuses it is asked without. Not the other way round:
/// a server may answer the question late, when another one has been asked.
fn lifecycles() -> [ClientLifecycleMode; 2] {
    let preferred_versions = vec![ProtocolVersion::LATEST];
    let today = ClientLifecycleMode::Discover { preferred_versions };
    [ClientLifecycleMode::Initialize, today]
}

async fn serve<T, E, A>(
    transport: T,
    lifecycle: ClientLifecycleMode,
) -> Result<Client, Box<ClientInitializeError>>
where
    T: rmcp::transport::IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    info()
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .map_err(Box::new)
}
