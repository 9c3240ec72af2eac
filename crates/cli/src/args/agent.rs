//! Flags of `brig agent` and `brig alias`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{CompatArgs, ConfigArgs};

/// Run agents that are described by a file
#[derive(Args, Debug)]
#[command(after_long_help = "\
An agent file says what is run, what it may do and where:

  name: reviewer
  command: [python3, review.py]
  policy: policy.yaml
  runtime:
    sandbox: true
    network_allowlist: [api.example.com]

Examples:
  brig agent run --workspace . ./reviewer.yaml --fast
  brig alias add review ./reviewer.yaml
  brig agent run review
  brig agent schema > agent.schema.json")]
pub struct AgentArgs {
    #[command(subcommand)]
    pub command: AgentCommand,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    Run(Box<AgentRunArgs>),
    Schema(AgentSchemaArgs),
}

/// Run an agent once
///
/// Whether it runs in a sandbox is said by --sandbox, else by the alias, else by the agent file, else
/// by the user's configuration; if nobody says anything, it does. If a file can't be read, nothing is
/// run.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig agent run [OPTIONS] REF [ARGS]...",
    after_long_help = "\
Examples:
  brig agent run ./reviewer.yaml
  brig agent run --workspace . review --fast     what follows REF goes to the agent
  brig agent run --allow api.example.com review
  brig agent run --sandbox=false review          with all that you may do yourself"
)]
pub struct AgentRunArgs {
    /// The path of an agent file, or an alias. A file that is called like an alias is written ./NAME
    #[arg(value_name = "REF")]
    pub reference: String,
    /// Arguments for the agent
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub args: Vec<OsString>,
    /// Run it in a sandbox, or with =false without one, whatever the files say
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    pub sandbox: Option<bool>,
    /// The folder to start in, relative to /workspace
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Connect standard input; without it the program reads an empty one
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the program a terminal. What it prints reaches yours as it is, escape sequences too
    #[arg(short, long)]
    pub tty: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Decide by this policy too, and hold its limits
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub policy: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Policy")]
    pub compat: CompatArgs,
    /// Print one JSON object with the result and nothing else on stdout
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
}

/// Print the JSON Schema of agent files
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig agent schema > agent.schema.json")]
pub struct AgentSchemaArgs {}

/// Give agents short names
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig alias add review ./reviewer.yaml
  brig alias add trusted ./reviewer.yaml --sandbox=false
  brig alias ls
  brig alias rm trusted")]
pub struct AliasArgs {
    #[command(subcommand)]
    pub command: AliasCommand,
}

#[derive(Debug, Subcommand)]
pub enum AliasCommand {
    /// Add an alias, or replace the one of that name
    #[command(after_long_help = "\
Examples:
  brig alias add review ./reviewer.yaml
  brig alias add trusted review --sandbox=false    the same file, without a sandbox")]
    Add {
        /// A letter or digit, then letters, digits, `-` and `_`
        name: String,
        /// The path of an agent file, or another alias
        #[arg(value_name = "REF")]
        reference: String,
        /// Run it in a sandbox, or with =false without one, when it is called by this name
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
    /// Remove an alias; its agent file stays
    ///
    /// An alias that does not exist is no error.
    #[command(after_long_help = "\
Examples:
  brig alias rm review")]
    Rm { name: String },
}
