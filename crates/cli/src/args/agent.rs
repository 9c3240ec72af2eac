//! Flags of `brig agent` and `brig alias`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;

use super::{ApprovalFlag, CompatArgs, ConfigArgs, JsonForm, ToolArgs, VerbosityArgs};
use crate::complete;

/// Run agents that are defined by a file
#[derive(Args, Debug)]
#[command(after_long_help = "\
An agent file defines what is run, what it may do and where:

  name: reviewer
  command: [python3, review.py]
  policy: policy.yaml
  runtime:
    sandbox: true
    network_allowlist: [api.example.com]
    mounts: ['./rules:/rules']         # needs `brig agent trust`
    secrets: [API_TOKEN]               # from your environment; needs `brig agent trust`
    env: {MODE: careful}
    tools:
      fetch: {command: [./fetch.sh]}   # runs on the host; needs `brig agent trust`
    limits: {memory: 1G, timeout: 2h}

Examples:
  brig agent run --workspace . ./reviewer.yaml --fast
  brig alias add review ./reviewer.yaml
  brig agent run review
  brig agent schema > agent.schema.json")]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub command: AgentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    Run(Box<AgentRunArgs>),
    Trust(AgentTrustArgs),
    Schema(AgentSchemaArgs),
}

/// Run an agent once
///
/// Whether it runs in a sandbox is set by --sandbox, else by the alias, else by the user's
/// configuration, else by the agent file; by default it does. If only the agent file turns the
/// sandbox off, allows addresses that are not public, mounts something of the host, takes variables
/// from your environment, runs tools on the host, raises limits or gives up controls, it is refused until it is trusted (`brig
/// agent trust`). The same holds for its policy. If a file cannot be read, nothing is run.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig agent run [OPTIONS] REF [ARGS]...",
    after_long_help = "\
Examples:
  brig agent run ./reviewer.yaml
  brig agent run --workspace . review --fast     arguments after REF go to the agent
  brig agent run --allow api.example.com review
  brig agent run --sandbox=false review          with your own permissions"
)]
pub(crate) struct AgentRunArgs {
    /// The path of an agent file, or an alias. Write ./NAME for a file with the same name as an
    /// alias
    #[arg(value_name = "REF", add = ArgValueCompleter::new(complete::agent_files))]
    pub reference: String,
    /// Arguments for the agent
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub args: Vec<OsString>,
    /// Run it in a sandbox, or without one with =false; overrides all files
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    pub sandbox: Option<bool>,
    /// The directory to start in, relative to /workspace
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Connect standard input. Without it, the program's standard input is empty
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the program a terminal. Its output reaches your terminal unchanged, including escape
    /// sequences
    #[arg(short, long)]
    pub tty: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Apply this policy too, and enforce its limits
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Policy",
        add = ArgValueCompleter::new(complete::policies)
    )]
    pub policy: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Policy")]
    pub compat: CompatArgs,
    #[command(flatten)]
    pub approvals: ApprovalFlag,
    #[command(flatten)]
    pub tools: ToolArgs,
    /// Print one JSON object with the result and nothing else on stdout; with =stream, one line for
    /// each event
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true,
        default_missing_value = "object", conflicts_with = "tty")]
    pub json: Option<JsonForm>,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

/// Trust an agent file to decide what only you may decide
///
/// A trusted file may turn the sandbox off, allow addresses of this machine and its network, mount
/// files and directories of the host, take variables from your environment, run tools on the host, raise
/// limits and give up controls.
/// Trust covers the current contents of the file and its policy: if either changes, trust must be
/// given again. The program that the agent starts is not covered. Without REF, lists the trusted
/// files.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig agent trust ./reviewer.yaml
  brig agent trust
  brig agent trust --remove ./reviewer.yaml")]
pub(crate) struct AgentTrustArgs {
    /// The path of an agent file, or an alias
    #[arg(value_name = "REF", add = ArgValueCompleter::new(complete::agent_files))]
    pub reference: Option<String>,
    /// No longer trust the file
    #[arg(long, requires = "reference")]
    pub remove: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Print the JSON Schema of agent files
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig agent schema > agent.schema.json")]
pub(crate) struct AgentSchemaArgs {}

/// Manage short names for agents
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig alias add review ./reviewer.yaml
  brig alias add trusted ./reviewer.yaml --sandbox=false
  brig alias ls
  brig alias rm trusted")]
pub(crate) struct AliasArgs {
    #[command(subcommand)]
    pub command: AliasCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AliasCommand {
    /// Add or replace an alias
    #[command(after_long_help = "\
Examples:
  brig alias add review ./reviewer.yaml
  brig alias add trusted review --sandbox=false    the same file, without a sandbox")]
    Add {
        /// The name: a letter or digit, then letters, digits, `-` and `_`
        name: String,
        /// The path of an agent file, or another alias
        #[arg(value_name = "REF")]
        reference: String,
        /// Run it in a sandbox, or without one with =false, when it is started by this name
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
            default_missing_value = "true")]
        sandbox: Option<bool>,
    },
    /// List aliases
    #[command(after_long_help = "\
Examples:
  brig alias ls
  brig alias ls --json | jq -r '.aliases[].path'")]
    Ls {
        /// Print one JSON object and nothing else on stdout
        #[arg(long)]
        json: bool,
    },
    /// Remove an alias, but not its agent file
    ///
    /// Removing an alias that does not exist is not an error.
    #[command(after_long_help = "\
Examples:
  brig alias rm review")]
    Rm {
        /// The alias
        name: String,
    },
}
