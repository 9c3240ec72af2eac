//! Why a source of tools can't be used.

use std::time::Duration;

use brig_tools::InvalidToolName;

/// Why a tool can't be registered. For the operator: it may name host paths.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The command line of a tool or a server.
    #[error("the command line is invalid: {0}")]
    Words(String),
    /// There is no such program, or it can't be executed.
    #[error("there is no program `{0}`")]
    NoProgram(String),
    /// A variable that a tool needs is not set.
    #[error("the variable `{0}` is not set in your environment")]
    NoVariable(String),
    /// A JSON Schema that is not one of an object.
    #[error("the schema of `{tool}` is invalid: {problem}")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong.
        problem: String,
    },
    /// A server that did not start, or did not answer as it should.
    #[error("MCP server `{server}`: {problem}")]
    Server {
        /// Its name.
        server: String,
        /// What is wrong.
        problem: String,
    },
    /// A server that did not answer in time.
    #[error("MCP server `{server}` did not answer within {} s", .after.as_secs_f64())]
    ServerTimeout {
        /// Its name.
        server: String,
        /// How long it had.
        after: Duration,
    },
    /// A tool of a server whose name can't be used.
    #[error("MCP server `{server}` has a tool that can't be registered: {invalid}")]
    ServerTool {
        /// Its name.
        server: String,
        /// The name of the tool.
        invalid: InvalidToolName,
    },
}

impl SourceError {
    /// What the operator can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Words(_) => None,
            Self::NoProgram(_) => Some("give the path of an executable file, or a name in PATH"),
            Self::NoVariable(_) => Some("set it, or give it a value"),
            Self::Schema { .. } => Some("write a JSON Schema with `type: object`"),
            Self::Server { .. } | Self::ServerTimeout { .. } => {
                Some("start the server by hand to see what it prints")
            }
            Self::ServerTool { .. } => Some(
                "select the tools that you want, and rename this one: --mcp-tool SERVER.TOOL=NAME",
            ),
        }
    }
}
