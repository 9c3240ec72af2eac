//! MCP servers that were started for a run.

use std::sync::Arc;

use brig_sandbox::Tool;
use brig_tool_sources::Notify;

use super::sources::Server;
use crate::failure::Failure;

#[cfg(feature = "mcp-client")]
#[derive(Debug, Default)]
pub(super) struct Servers(Vec<brig_tool_sources::McpServer>);

#[cfg(feature = "mcp-client")]
impl Servers {
    /// Starts a server, and returns its tools.
    pub(super) async fn start(
        &mut self,
        server: Server,
        notify: Notify,
    ) -> Result<Vec<Arc<dyn Tool>>, Failure> {
        use brig_tool_sources::{Endpoint, McpServer, ServerSpec};

        use super::sources::{ServerTransport, failed};

        let spec = ServerSpec {
            name: server.name,
            endpoint: match server.transport {
                ServerTransport::Program(program) => Endpoint::Program(program),
                ServerTransport::Url(url, headers) => Endpoint::Url { url, headers },
            },
            tools: server.tools,
            timeout: server.timeout,
            start_timeout: server.start_timeout,
        };
        let server = McpServer::connect(spec, notify).await.map_err(failed)?;
        let tools = server.tools().cloned().collect();
        self.0.push(server);
        Ok(tools)
    }

    pub(super) async fn close(self) {
        for server in self.0 {
            server.close().await;
        }
    }
}

#[cfg(not(feature = "mcp-client"))]
#[derive(Debug, Default)]
pub(super) struct Servers;

#[cfg(not(feature = "mcp-client"))]
impl Servers {
    pub(super) async fn start(
        &mut self,
        server: Server,
        _notify: Notify,
    ) -> Result<Vec<Arc<dyn Tool>>, Failure> {
        Err(Failure::new(
            brig_reason::ReasonCode::ToolUnavailable,
            format!(
                "MCP server `{}`: this brig was built without MCP",
                server.name
            ),
        )
        .with_hint("build it with the feature `mcp-client`"))
    }

    pub(super) async fn close(self) {}
}
