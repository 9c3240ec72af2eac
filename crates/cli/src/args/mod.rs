//! The command line as types. The texts here are the help and the reference.

mod agent;
mod approvals;
mod audit;
mod commands;
mod config;
#[cfg(feature = "mcp")]
mod mcp;
mod network;
mod options;
mod policy;
mod prune;
mod session;
mod settings;
mod tools;
mod values;
mod variables;
mod verbosity;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use agent::{
    AgentArgs, AgentCommand, AgentRunArgs, AgentTrustArgs, AliasArgs, AliasCommand,
};
pub(crate) use approvals::{
    ApprovalFlag, ApprovalPlace, ApprovalsAnswerArgs, ApprovalsArgs, ApprovalsCommand,
};
pub(crate) use audit::{
    AgtChainArgs, AuditArgs, AuditCommand, CheckProofArgs, ConsistencyArgs, ExportArgs,
    ExportFormat, Filter, ProveArgs, PruneArgs, ShowArgs, VerifyArgs,
};
pub(crate) use commands::{CommandsArgs, CommandsCommand, ScanArgs};
pub(crate) use config::ConfigArgs;
#[cfg(feature = "mcp")]
pub(crate) use mcp::{Client, McpArgs, McpCommand, McpConfigArgs};
pub(crate) use network::{
    CheckHostArgs, HostsArgs, ListHostsArgs, SandboxArgs, SandboxCommand, SuggestArgs, UsedArgs,
};
pub(crate) use policy::{
    CheckArgs, CompatArgs, DiffArgs, ExplainArgs, FactArgs, PolicyCommand, RunPolicyArgs, TestArgs,
};
pub(crate) use prune::PruneAllArgs;
pub(crate) use session::{
    CheckpointArgs, CopyArgs, CreateArgs, DestroyArgs, ExecArgs, ForkArgs, InspectArgs, ListArgs,
    NetworkCommand, RestoreArgs, SessionCommand, SessionName,
};
pub(crate) use settings::{SettingsArgs, SettingsCommand, SettingsShowArgs};
pub(crate) use tools::{
    Endpoint, ToolArgs, ToolsArgs, ToolsCallArgs, ToolsCheckArgs, ToolsCommand, ToolsListArgs,
};
pub(crate) use values::{JsonForm, Lang, Overflow, duration};
pub(crate) use variables::EnvArgs;
pub(crate) use verbosity::VerbosityArgs;
pub(crate) use work::WorkArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Run the code and the commands of AI agents in a sandbox
///
/// No daemon, no image, no root. Code runs in its own namespaces, without network except for
/// allowed hosts, and with limits on time, memory, CPUs, processes, disk and output.
#[derive(Debug, Parser)]
#[command(
    name = "brig",
    version = crate::version::text(),
    styles = STYLES,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_long_help = "\
Exit codes:
  The program's own, or
  124  the timeout ended it
  125  Brig itself failed, or the command line is wrong
  126  denied by policy (or, as in a shell, the program cannot be executed)
  127  the program was not found, as in a shell
  130  cancelled with Ctrl-C (128 + the signal for other signals)
  137  a limit on memory, processes or output ended it

Topics:
  brig help exit-codes, network, policy, limits, environment, json

Files:
  $XDG_STATE_HOME/brig               sessions, audit log (usually ~/.local/state/brig)
  $XDG_CONFIG_HOME/brig/config.yaml  allowed hosts, aliases, defaults (usually ~/.config/brig)

Try:
  brig run -c 'print(\"hello from the brig\")'
  brig doctor"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    pub(crate) fn parse_args(
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let args: Vec<OsString> = work::double_dash(args).collect();
        match Self::parse_frequent(&args) {
            Some(cli) => Ok(cli),
            None => Self::try_parse_from(args),
        }
    }

    /// The commands that run something, without building the parsers of all the others, which takes longer than
    /// the parsing. Whatever is not a correct command line of these is left to the whole parser, for its messages.
    fn parse_frequent(args: &[OsString]) -> Option<Self> {
        let name = args.get(1)?.to_str()?;
        let command = clap::Command::new(name.to_owned());
        let command = match name {
            "run" => RunArgs::augment_args(command),
            "session" => SessionArgs::augment_args(command),
            _ => return None,
        };
        let root = clap::Command::new("brig").subcommand(command);
        let matches = root.try_get_matches_from(args).ok()?;
        Self::from_arg_matches(&matches).ok()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Session(SessionArgs),
    Agent(AgentArgs),
    Alias(AliasArgs),
    #[cfg(feature = "mcp")]
    Mcp(Box<McpArgs>),
    Sandbox(SandboxArgs),
    Policy(PolicyArgs),
    Approvals(ApprovalsArgs),
    Audit(AuditArgs),
    Commands(CommandsArgs),
    Tools(ToolsArgs),
    Config(SettingsArgs),
    Doctor(DoctorArgs),
    Prune(PruneAllArgs),
    Completions(CompletionsArgs),
    Version(VersionArgs),
    Help(HelpArgs),
    #[command(hide = true)]
    Reference,
    #[command(hide = true)]
    Man(ManArgs),
}

/// Run code, a script or a command once, in a sandbox that is removed afterwards
///
/// Output is streamed: the program's stdout to stdout, its stderr to stderr. On a terminal, escape
/// sequences and control characters are shown but not interpreted, unless -t is given. Into a pipe
/// or a file, the bytes are written unchanged.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig run [OPTIONS] -c CODE [ARGS]...\n       \
                      brig run [OPTIONS] FILE [ARGS]...\n       \
                      brig run [OPTIONS] -- CMD [ARGS]...",
    after_long_help = "\
Examples:
  brig run -c 'print(6 * 7)'                     Python from the command line
  brig run analyse.py --fast                     a script; arguments after it go to the script
  brig run --script-dir=false downloaded.py      only the script, nothing beside it
  brig run --lang bash - <<<'echo $HOME'         a script from standard input
  brig run -- ls -l /                            a command
  brig run --timeout 5s --memory 256M job.py     tighter limits
  brig run --mount ./data:/data main.py          a host directory, read-only
  brig run -e API_TOKEN --env-file app.env -c 'import os; print(sorted(os.environ))'
                                                 variables, by name and from a file
  brig run --policy policy.yaml agent.py         only what a policy allows
  brig run --observe build.py                    which programs it starts
  brig run --allow pypi.org --allow '*.pythonhosted.org' -- pip download six
                                                 these hosts, and no others
  brig run --policy policy.yaml --tool fetch_arxiv=./fetch.sh agent.py
                                                 a command of the host that code may call
  brig run --workspace . -- make test            work on this directory, in place
  tar c src | brig run -i -- tar tv              standard input
  brig run -it -- bash                           a terminal inside
  brig run --json -c 'print(1)' | jq .result     one object with everything"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    #[command(flatten)]
    pub facts: FactArgs,
    #[command(flatten)]
    pub approvals: ApprovalFlag,
    #[command(flatten)]
    pub tools: ToolArgs,
    /// Show the directory of FILE read-only as /script, so that it finds modules and scripts beside it; with
    /// =false send only FILE [default: if there are any, and the directory may be mounted]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", help_heading = "Sandbox")]
    pub script_dir: Option<bool>,
    /// Record every program that is started, and print a command policy that would allow them
    #[arg(long)]
    pub observe: bool,
    /// Run nothing; show what the policies decide on this command, why, and what would change it
    #[arg(long, help_heading = "Policy")]
    pub explain: bool,
    /// Print one JSON object with the result and nothing else on stdout; with =stream, one line for
    /// each event
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true,
        default_missing_value = "object", conflicts_with = "tty")]
    pub json: Option<JsonForm>,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

/// Work in a session, which keeps its files across executions
#[derive(Args, Debug)]
#[command(after_long_help = "\
A session is named by its id, or as AGENT/ID if several agents have a session with that id.

Examples:
  id=$(brig session create --memory 1G)
  brig session exec $id -c 'open(\"a.txt\", \"w\").write(\"kept\")'
  brig session exec $id -- cat a.txt
  brig session checkpoint $id before
  brig session destroy $id")]
pub(crate) struct SessionArgs {
    #[command(subcommand)]
    pub command: SessionCommand,
}

/// Check, explain, test and compare policies
///
/// Nothing is run.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig policy check policy.yaml
  brig policy explain policy.yaml --fact code='import subprocess'
  brig policy test policy.yaml policy.cases.yaml
  brig policy diff old.yaml new.yaml
  brig run --policy policy.yaml -c 'print(1)'")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// Show what each backend can enforce here, what is missing, and how to fix it
///
/// Runs a program on every backend, with the defaults of your configuration. Exits with 0 if `brig run`
/// without flags can run code, otherwise with 125.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig doctor
  brig doctor --json | jq '.backends[].controls[] | select(.strength != \"enforced\")'")]
pub(crate) struct DoctorArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Print a completion script for a shell
///
/// The script asks `brig` for what may follow: commands and flags, and the sessions, checkpoints, backends,
/// aliases and policies that there are.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig completions bash > ~/.local/share/bash-completion/completions/brig
  brig completions zsh > ~/.zfunc/_brig
  brig completions fish > ~/.config/fish/completions/brig.fish")]
pub(crate) struct CompletionsArgs {
    pub shell: Shell,
}

/// Show help about a topic or a command
///
/// Topics: exit-codes, network, policy, limits, environment, json.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig help                 all commands and topics
  brig help network         a topic
  brig help session exec    a command")]
pub(crate) struct HelpArgs {
    /// A topic, or the words of a command
    #[arg(value_name = "TOPIC")]
    pub topic: Vec<String>,
}

/// Write a manual page for every command
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Where to; it is created if it is missing
    pub directory: PathBuf,
}

/// Print the version, the commit that it was built from, and the backends that it has
#[derive(Args, Debug)]
pub(crate) struct VersionArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
