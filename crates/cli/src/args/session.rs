//! Flags of `brig session`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use brig_hosts::Rule;
use brig_sandbox::{AgentId, CheckpointName, SessionId};
use clap::{Args, Subcommand};

use super::{ConfigArgs, FactArgs, UnderArgs, WorkArgs, values};

#[derive(Debug, Subcommand)]
pub enum SessionCommand {
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

/// A session as typed: `ID`, or `AGENT/ID` when several agents have one of that id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName {
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
pub struct CreateArgs {
    /// The id of the session [default: a random one]
    #[arg(value_name = "ID")]
    pub id: Option<SessionId>,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub under: UnderArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Run code, a script or a command in a session
///
/// Files stay; processes end with the execution that started them.
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
pub struct ExecArgs {
    /// ID or AGENT/ID
    pub session: SessionName,
    #[command(flatten)]
    pub work: WorkArgs,
    /// End this execution after this time. If the session was created with --timeout, the sooner
    /// of the two holds [default: 60s, none with -t]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub timeout: Option<Duration>,
    /// Set a variable for this execution
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::variable)]
    pub env: Vec<(String, String)>,
    #[command(flatten)]
    pub facts: FactArgs,
    /// Print one JSON object with the result and nothing else on stdout
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
}

/// List sessions
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session ls
  brig session ls --agent alice
  brig session ls --json | jq -r '.sessions[].session_id'")]
pub struct ListArgs {
    /// Only those of this agent
    #[arg(long, value_name = "ID")]
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
pub struct InspectArgs {
    /// ID or AGENT/ID
    pub session: SessionName,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Copy a file into a session or out of it
///
/// A file that exists is not replaced unless --force is given. Paths inside are below
/// /workspace. Modes are kept on the way in; what comes out is never executable. A local path
/// with a `:` in it is written with `./` in front.
#[derive(Args, Debug)]
#[command(
    override_usage = "brig session cp [OPTIONS] SRC SESSION:PATH\n       \
                      brig session cp [OPTIONS] SESSION:PATH DST",
    after_long_help = "\
Examples:
  brig session cp data.csv build:data.csv
  brig session cp data.csv build:in/               into a folder, under its own name
  brig session cp build:out/plot.png .
  brig session cp --force build:log.txt log.txt
  curl -s https://example.org | brig session cp - build:page.html
  brig session cp build:page.html - | less

Folders:
  tar c src | brig session exec -i build -- tar x"
)]
pub struct CopyArgs {
    /// A local file, `-` for standard input, or SESSION:PATH
    #[arg(value_name = "SRC")]
    pub source: String,
    /// A local file or folder, `-` for standard output, or SESSION:PATH
    #[arg(value_name = "DST")]
    pub target: String,
    /// Replace a file that exists
    #[arg(short, long)]
    pub force: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Save the files of a session under a name, list what was saved, or delete it
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
pub struct CheckpointArgs {
    /// ID or AGENT/ID
    pub session: SessionName,
    /// The name to save under
    #[arg(required_unless_present_any = ["list", "remove"], conflicts_with_all = ["list", "remove"])]
    pub name: Option<CheckpointName>,
    /// List the checkpoints of the session
    #[arg(long = "ls", conflicts_with = "remove")]
    pub list: bool,
    /// Delete a checkpoint
    #[arg(long = "rm", value_name = "NAME")]
    pub remove: Option<CheckpointName>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Bring the files of a session back to a checkpoint; later changes are lost
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session restore build before")]
pub struct RestoreArgs {
    /// ID or AGENT/ID
    pub session: SessionName,
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
pub struct ForkArgs {
    /// ID or AGENT/ID
    pub session: SessionName,
    pub name: CheckpointName,
    /// The id of the new session [default: a random one]
    #[arg(long = "as", value_name = "ID")]
    pub id: Option<SessionId>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// End sessions with everything that runs in them, and delete their files and checkpoints
///
/// Destroying a session that does not exist is not an error.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig session destroy build
  brig session destroy alice/build bob/build")]
pub struct DestroyArgs {
    /// ID or AGENT/ID
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<SessionName>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Change what a session may reach, also while it runs
#[derive(Args, Debug)]
#[command(after_long_help = "\
What is changed here holds for one session, beside its policy and your own allowlist. An execution
that is under way follows at once: connections that are no longer allowed are closed. A session that
was started without any network gets it with its next execution.

Examples:
  brig session network allow build pypi.org files.pythonhosted.org
  brig session network deny build pypi.org
  brig session network show build --json")]
pub struct NetworkArgs {
    #[command(subcommand)]
    pub command: NetworkCommand,
}

#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    /// Allow hosts
    Allow(NetworkChange),
    /// Deny hosts, whoever else allows them
    Deny(NetworkChange),
    /// Show what was changed
    Show(NetworkShow),
}

#[derive(Args, Debug)]
pub struct NetworkChange {
    /// A session
    #[arg(value_name = "SESSION")]
    pub session: SessionName,
    /// Hosts, such as `pypi.org`, `*.example.org:8443` or `10.0.0.0/8:5432`
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<Rule>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct NetworkShow {
    /// A session
    #[arg(value_name = "SESSION")]
    pub session: SessionName,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
