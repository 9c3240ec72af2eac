//! Brig as an MCP server: six tools that run code in sandboxes, under one policy that was set before the
//! first message. The client is the agent's program; the model behind it chooses the arguments. So no
//! argument can change what the policy, the backend, the mounts or the limits are.

#![warn(missing_docs)]

mod arguments;
mod calls;
mod capture;
mod describe;
mod error;
mod files;
mod images;
mod resources;
mod results;
mod run;
mod server;
mod sessions;
mod text;
mod tools;
mod transport;

use std::time::Duration;

use brig_policy::Extra;
use brig_sandbox::{AgentId, Attempted, Plan, Sandbox, SessionConfig};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

pub use transport::Ended;

/// What a server is made of. All of it is fixed before the first message is read.
#[derive(Debug)]
pub struct Setup {
    /// Runs everything, and records it.
    pub sandbox: Sandbox,
    /// Who all executions are recorded for.
    pub agent: AgentId,
    /// The config of every sandbox, with its policies.
    pub config: SessionConfig,
    /// What the config means on this backend. Descriptions of the tools are made from it.
    pub plan: Plan,
    /// Facts that the operator adds for every decision.
    pub facts: Extra,
    /// A session ends when it was not used for this time.
    pub idle: Duration,
    /// How many bytes of each stream are shown in a result. Resources have the rest.
    pub shown: usize,
    /// What an execution was denied, as a list of objects.
    pub denials: fn(&Attempted) -> Value,
    /// What the operator can do about a denial of the policy, such as which file to change.
    pub operator: Option<String>,
    /// Of Brig, as the client is told.
    pub version: String,
}

/// Serves one client until its stream ends or `stop` is cancelled. When it returns, nothing runs any more
/// and all sessions are gone.
pub async fn serve(
    setup: Setup,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
) -> Result<Ended, std::io::Error> {
    transport::serve(setup, read, write, stop).await
}

/// The same on standard input and output. What else writes to standard output breaks the protocol.
pub async fn serve_stdio(setup: Setup, stop: CancellationToken) -> Result<Ended, std::io::Error> {
    let (read, write) = rmcp::transport::io::stdio_pipes();
    serve(setup, read, write, stop).await
}
