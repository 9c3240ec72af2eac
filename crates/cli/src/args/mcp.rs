//! Flags of `brig mcp`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{ConfigArgs, FactArgs, RunPolicyArgs, ToolArgs, VerbosityArgs, values};

/// Serve the sandbox to an agent, as an MCP server on standard input and output
///
/// One client, one policy: that of the flags, which are those of `brig run`. No argument of a tool can
/// change it. The tools are run_code, run_command, write_file, read_file, list_files and end_session. When
/// the client closes its end, everything is ended and removed.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  brig mcp --policy policy.yaml            what an agent's configuration starts
  brig mcp --workspace . --allow pypi.org  on this directory, with one host
  brig mcp config claude --workspace .     the configuration for Claude Code
  claude mcp add brig -- brig mcp          or let Claude Code write it"
)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub command: Option<McpCommand>,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    #[command(flatten)]
    pub facts: FactArgs,
    #[command(flatten)]
    pub tools: ToolArgs,
    /// End a session of the client that was not used for this time
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30m",
        help_heading = "Limits")]
    pub session_idle: Duration,
    /// Show the model at most this much of each stream: the first quarter and the end. All that was kept is a
    /// resource
    #[arg(long, value_name = "SIZE", value_parser = shown_size, default_value = "32K", help_heading = "Limits")]
    pub show_output: usize,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

/// More than a message can have helps no client.
fn shown_size(text: &str) -> Result<usize, String> {
    const MOST: usize = 4 << 20;
    let size = usize::try_from(values::size(text)?).ok();
    let size = size.filter(|size| *size <= MOST);
    size.ok_or_else(|| "at most 4M can be shown; resources have the rest".into())
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    Config(McpConfigArgs),
}

/// Print the configuration with which a client starts `brig mcp`
///
/// Where to put it is said on stderr. Paths in FLAGS become absolute, because clients start servers in
/// directories of their own.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig mcp config claude --policy policy.yaml > .mcp.json
  brig mcp config vscode --workspace .
  brig mcp config codex >> ~/.codex/config.toml")]
pub(crate) struct McpConfigArgs {
    /// The client that it is for
    #[arg(value_enum)]
    pub client: Client,
    /// The flags of `brig mcp`
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub flags: Vec<OsString>,
}

/// An MCP client whose configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Code
    Claude,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Codex CLI
    Codex,
}
