//! The command line as types. The texts here are the help and the reference.

mod agent;
mod audit;
mod commands;
mod config;
mod network;
mod policy;
mod session;
mod values;
mod work;

use std::ffi::OsString;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use agent::{AgentArgs, AgentCommand, AgentRunArgs, AliasArgs, AliasCommand};
pub use audit::{
    AgtChainArgs, AuditArgs, AuditCommand, CheckProofArgs, ConsistencyArgs, ExportArgs,
    ExportFormat, Filter, ProveArgs, ShowArgs, VerifyArgs,
};
pub use commands::{CommandsArgs, CommandsCommand, ScanArgs};
pub use config::ConfigArgs;
pub use network::{
    CheckHostArgs, HostsArgs, ListHostsArgs, SandboxArgs, SandboxCommand, SuggestArgs, UsedArgs,
};
pub use policy::{
    CheckArgs, CompatArgs, DiffArgs, ExplainArgs, FactArgs, FolderArgs, PolicyCommand, TestArgs,
    UnderArgs,
};
pub use session::{
    CheckpointArgs, CopyArgs, CreateArgs, DestroyArgs, ExecArgs, ForkArgs, InspectArgs, ListArgs,
    NetworkCommand, RestoreArgs, SessionCommand, SessionName,
};
pub use values::{Lang, Overflow, duration};
pub use work::WorkArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Run the code and the commands of AI agents in a sandbox
///
/// No daemon, no image, no root: code runs in namespaces of its own, without network but for the
/// hosts that are allowed, with limits on time, memory, processors, processes, disk and output.
#[derive(Debug, Parser)]
#[command(
    name = "brig",
    version,
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

Files:
  $XDG_STATE_HOME/brig               sessions, checkpoints and evidence (usually ~/.local/state/brig)
  $XDG_CONFIG_HOME/brig/config.yaml  allowed hosts, aliases, defaults (usually ~/.config/brig)

Try:
  brig run -c 'print(\"hello from the brig\")'
  brig doctor"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    pub fn parse_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(work::double_dash(args))
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<RunArgs>),
    Session(SessionArgs),
    Agent(AgentArgs),
    Alias(AliasArgs),
    Sandbox(SandboxArgs),
    Policy(PolicyArgs),
    Audit(AuditArgs),
    Commands(CommandsArgs),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
    Version(VersionArgs),
    #[command(hide = true)]
    Reference,
}

/// Run code, a script or a command once, in a sandbox that is gone afterwards
///
/// Output streams as it comes: the program's stdout to stdout, its stderr to stderr. On a
/// terminal, escape sequences and control characters in it are shown and not obeyed, unless -t
/// is given; into a pipe or a file the bytes go unchanged.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig run [OPTIONS] -c CODE [ARGS]...\n       \
                      brig run [OPTIONS] FILE [ARGS]...\n       \
                      brig run [OPTIONS] -- CMD [ARGS]...",
    after_long_help = "\
Examples:
  brig run -c 'print(6 * 7)'                     Python from the command line
  brig run analyse.py --fast                     a script; what follows it goes to the script
  brig run --lang bash - <<<'echo $HOME'         a script from standard input
  brig run -- ls -l /                            a command
  brig run --timeout 5s --memory 256M job.py     tighter limits
  brig run --mount ./data:/data main.py          a folder of the host, read-only
  brig run --policy policy.yaml agent.py         only what a policy allows
  brig run --observe build.py                    which programs it starts
  brig run --allow pypi.org --allow '*.pythonhosted.org' -- pip download six
                                                 these hosts, and no others
  brig run --workspace . -- make test            work on this folder, in place
  tar c src | brig run -i -- tar tv              standard input
  brig run -it -- bash                           a terminal inside
  brig run --json -c 'print(1)' | jq .result     one object with everything"
)]
pub struct RunArgs {
    #[command(flatten)]
    pub work: WorkArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub under: UnderArgs,
    #[command(flatten)]
    pub facts: FactArgs,
    /// Record every program that is started, and print the command policy that it would take
    #[arg(long)]
    pub observe: bool,
    /// Print one JSON object with the result and nothing else on stdout
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
}

/// Work in a session: a place with files that lives across executions
#[derive(Args, Debug)]
#[command(after_long_help = "\
Sessions are named by their id, or as AGENT/ID when several agents have one of that id.

Examples:
  id=$(brig session create --memory 1G)
  brig session exec $id -c 'open(\"a.txt\", \"w\").write(\"kept\")'
  brig session exec $id -- cat a.txt
  brig session checkpoint $id before
  brig session destroy $id")]
pub struct SessionArgs {
    #[command(subcommand)]
    pub command: SessionCommand,
}

/// Check policies, ask why they decide as they do, and compare them
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
pub struct PolicyArgs {
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// Say what each backend can enforce here, what is missing, and what would mend it
///
/// Exits with 0 if at least one backend can run code, otherwise with 125.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig doctor
  brig doctor --json | jq '.backends[].controls[] | select(.strength != \"enforced\")'")]
pub struct DoctorArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig completions bash > ~/.local/share/bash-completion/completions/brig
  brig completions zsh > ~/.zfunc/_brig
  brig completions fish > ~/.config/fish/completions/brig.fish")]
pub struct CompletionsArgs {
    pub shell: Shell,
}

/// Print the version
#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
