//! Where tools come from beside the library: commands of the host, and MCP servers.
//!
//! Both run outside of the sandbox, with the rights of the caller. What they write is bounded, and they end
//! completely, with everything they have started, when the call or the run is over.

#![warn(missing_docs)]

mod bounded;
mod command;
mod error;
#[cfg(feature = "mcp-client")]
mod mcp;
mod program;
mod schema;
mod secrets;
mod text;
mod words;

use std::sync::Arc;

pub use command::CommandTool;
pub use error::SourceError;
#[cfg(feature = "mcp-client")]
pub use mcp::{Endpoint, McpServer, ServerSpec};
pub use program::Program;
pub use words::split;

/// Tells the operator what the sandboxed code must not see, such as what a tool writes to its stderr.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;
