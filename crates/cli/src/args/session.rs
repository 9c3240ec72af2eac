//! Flags of `brig session`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use brig_hosts::Rule;
use brig_sandbox::{AgentId, CheckpointName, SessionId};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;

use super::{
    ApprovalFlag, ConfigArgs, EnvArgs, FactArgs, JsonForm, RunPolicyArgs, ToolArgs, VerbosityArgs,
    WorkArgs, values,
};
use crate::complete;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    Create(Box<CreateArgs>),
    Exec(Box<ExecArgs>),
    Ls(ListArgs),
    Inspect(InspectArgs),
    Cp(CopyArgs),
    Checkpoint(CheckpointArgs),
    Restore(RestoreArgs),
    Fork(ForkArgs),
    Destroy(DestroyArgs),
    Network(NetworkArgs),
}

/// A session as typed: `ID`, or `AGENT/ID` if several agents have a session with that id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionName {
    pub agent: Option<AgentId>,
    pub id: SessionId,
}

impl FromStr for SessionName {
    type Err = brig_sandbox::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('/') {
            Some((agent, id)) => Self {
                agent: Some(agent.parse()?),
                id: id.parse()?,
            },
            None => Self {
                agent: None,
                id: text.parse()?,
            },
        })
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.agent {
            Some(agent) => write!(f, "{agent}/{}", self.id),
            None => self.id.fmt(f),
        }
    }
}

/// Create a session and print its id
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session create
  brig session create build --agent alice --memory 1G --disk 2G
  brig session create --allow api.example.com
  brig session create --json")]
pub(crate) struct CreateArgs {
    /// The id of the session [default: a random one]
    #[arg(value_name = "ID")]
    pub id: Option<SessionId>,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    #[command(flatten)]
    pub tools: ToolArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

/// Run code, a script or a command in a session
///
/// Files persist; processes end with the execution that started them.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig session exec [OPTIONS] SESSION -c CODE [ARGS]...\n       \
                      brig session exec [OPTIONS] SESSION FILE [ARGS]...\n       \
                      brig session exec [OPTIONS] SESSION -- CMD [ARGS]...",
    after_long_help = "\
Examples:
  brig session exec build -c 'print(open(\"a.txt\").read())'
  brig session exec build --timeout 10m -- make test
  brig session exec -it alice/build -- bash"
)]
pub(crate) struct ExecArgs {
    /// ID or AGENT/ID
    #[arg(add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    #[command(flatten)]
    pub work: WorkArgs,
    /// End this execution after this time. If the session was created with --timeout, the shorter
    /// of the two applies [default: 60s, 24h with -t]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,
    /// How much of each of stdout and stderr is kept in the result (--json). If the session was created
    /// with --output-max, the smaller of the two applies [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub output_max: Option<u64>,
    #[command(flatten)]
    pub env: EnvArgs,
    #[command(flatten)]
    pub facts: FactArgs,
    #[command(flatten)]
    pub approvals: ApprovalFlag,
    #[command(flatten)]
    pub tools: ToolArgs,
    /// Run nothing; show what the policies of the session decide on this, why, and what would change it
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

/// List sessions
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session ls
  brig session ls --agent alice
  brig session ls --json | jq -r '.sessions[].session_id'")]
pub(crate) struct ListArgs {
    /// Only this agent
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(complete::agents))]
    pub agent: Option<AgentId>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show a session: its state, its limits and its checkpoints
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session inspect build
  brig session inspect alice/build --json")]
pub(crate) struct InspectArgs {
    /// ID or AGENT/ID
    #[arg(add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Copy files into a session or out of it
///
/// A file that exists is not replaced unless --force is given. Paths inside are below /workspace.
/// Copying in keeps file modes; a file that is copied out is never executable. Write a local path
/// that contains `:` with a leading `./`.
///
/// With -r, a directory is copied, into a directory that exists under its own name; DIR/. is what is in
/// it. Symbolic links, sockets, pipes and devices are left out. What may not be mounted is not copied in,
/// and secrets such as .ssh or .npmrc are left out, too. Out of a session, the directory gets a new name.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig session cp [OPTIONS] SRC SESSION:PATH\n       \
                      brig session cp [OPTIONS] SESSION:PATH DST",
    after_long_help = "\
Examples:
  brig session cp data.csv build:data.csv
  brig session cp data.csv build:in/               into a directory, under its own name
  brig session cp build:out/plot.png .
  brig session cp --force build:log.txt log.txt
  brig session cp -r src build:                    a directory, as /workspace/src
  brig session cp -r src/. build:                  what is in it, into /workspace
  brig session cp -r build:dist ./dist
  curl -s https://example.org | brig session cp - build:page.html
  brig session cp build:page.html - | less"
)]
pub(crate) struct CopyArgs {
    /// A local file or directory, `-` for standard input, or SESSION:PATH
    #[arg(value_name = "SRC", add = ArgValueCompleter::new(complete::copied))]
    pub source: String,
    /// A local file or directory, `-` for standard output, or SESSION:PATH
    #[arg(value_name = "DST", add = ArgValueCompleter::new(complete::copied))]
    pub target: String,
    /// Copy a directory with all that is in it
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace files that exist
    #[arg(short, long)]
    pub force: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Create, list or delete checkpoints, which save the files of a session
#[derive(Args, Debug)]
#[command(
    override_usage = "brig session checkpoint [OPTIONS] SESSION NAME\n       \
                      brig session checkpoint [OPTIONS] SESSION --ls\n       \
                      brig session checkpoint [OPTIONS] SESSION --rm NAME",
    after_long_help = "\
Examples:
  brig session checkpoint build before
  brig session checkpoint build --ls
  brig session checkpoint build --rm before"
)]
pub(crate) struct CheckpointArgs {
    /// ID or AGENT/ID
    #[arg(add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    /// The name of the checkpoint
    #[arg(required_unless_present_any = ["list", "remove"], conflicts_with_all = ["list", "remove"])]
    pub name: Option<CheckpointName>,
    /// List the checkpoints of the session
    #[arg(long = "ls", conflicts_with = "remove")]
    pub list: bool,
    /// Delete a checkpoint
    #[arg(
        long = "rm",
        value_name = "NAME",
        add = ArgValueCompleter::new(complete::checkpoints)
    )]
    pub remove: Option<CheckpointName>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Restore the files of a session from a checkpoint; later changes are lost
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session restore build before")]
pub(crate) struct RestoreArgs {
    /// ID or AGENT/ID
    #[arg(add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    /// The name of the checkpoint
    #[arg(add = ArgValueCompleter::new(complete::checkpoints))]
    pub name: CheckpointName,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Start a new session from a checkpoint of another and print its id
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session fork build before
  brig session fork build before --as experiment")]
pub(crate) struct ForkArgs {
    /// ID or AGENT/ID
    #[arg(add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    /// The name of the checkpoint
    #[arg(add = ArgValueCompleter::new(complete::checkpoints))]
    pub name: CheckpointName,
    /// The id of the new session [default: a random one]
    #[arg(long = "as", value_name = "ID")]
    pub id: Option<SessionId>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Destroy sessions: kill everything that runs in them, and delete their files and checkpoints
///
/// Destroying a session that does not exist is not an error.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session destroy build
  brig session destroy alice/build bob/build
  brig session destroy --all --yes")]
pub(crate) struct DestroyArgs {
    /// ID or AGENT/ID
    #[arg(
        required_unless_present = "all",
        value_name = "SESSION",
        add = ArgValueCompleter::new(complete::sessions)
    )]
    pub sessions: Vec<SessionName>,
    /// All sessions of all agents. Needs --yes
    #[arg(long, conflicts_with = "sessions")]
    pub all: bool,
    /// Confirm --all
    #[arg(long, requires = "all")]
    pub yes: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Change which hosts a session may reach, also while it runs
#[derive(Args, Debug)]
#[command(after_long_help = "\
Changes apply to one session, in addition to its policy and your own allowlist.
They take effect at once, also for a running execution: connections that are no longer
allowed are closed. A session that was started without network gets it with its next
execution.

Examples:
  brig session network allow build pypi.org files.pythonhosted.org
  brig session network block build pypi.org
  brig session network unblock build pypi.org
  brig session network show build --json")]
pub(crate) struct NetworkArgs {
    #[command(subcommand)]
    pub command: NetworkCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// Allow hosts, and unblock them
    Allow(NetworkChange),
    /// Block hosts, even if another rule allows them
    #[command(alias = "deny")]
    Block(NetworkChange),
    /// Remove hosts from the blocked hosts of the session
    ///
    /// The hosts are not allowed by this. A host that is not blocked is not an error.
    Unblock(NetworkChange),
    /// Show the hosts that are allowed and blocked for this session
    Show(NetworkShow),
}

#[derive(Args, Debug)]
pub(crate) struct NetworkChange {
    /// ID or AGENT/ID
    #[arg(value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    /// Hosts, such as `pypi.org`, `*.example.org:8443` or `10.0.0.0/8:5432/tcp`
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<Rule>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct NetworkShow {
    /// ID or AGENT/ID
    #[arg(value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
    pub session: SessionName,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
