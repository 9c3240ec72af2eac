//! Flags for tools, and those of `brig tools`.

use std::time::Duration;

use brig_sandbox::ToolName;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;

use super::{RunPolicyArgs, VerbosityArgs, values};
use crate::complete;

/// Tools for one run.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Tools")]
pub(crate) struct ToolArgs {
    /// Let code call this command of the host by this name, as far as the policy lists it: it gets JSON
    /// arguments on its stdin, and its stdout is the result, JSON or text. There is no shell
    #[arg(long, value_name = "NAME=COMMAND", value_parser = tool)]
    pub tool: Vec<(ToolName, Vec<String>)>,
    /// Let code call the tools of this MCP server, as far as the policy lists them: a command that speaks
    /// MCP on its standard streams, or the URL of a server
    #[arg(long, value_name = "NAME=COMMAND|URL", value_parser = server)]
    pub mcp_server: Vec<(String, Endpoint)>,
    /// Of an MCP server of --mcp-server, register only this tool, and others that are named like this;
    /// with =NAME by another name
    #[arg(long, value_name = "SERVER.TOOL[=NAME]", value_parser = renamed)]
    pub mcp_tool: Vec<(String, String, ToolName)>,
    /// Give the commands of --tool and --mcp-server this variable, or its value in your environment
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    pub tool_env: Vec<(String, Option<String>)>,
    /// End a call of a tool of --tool and --mcp-server after this time [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub tool_timeout: Option<Duration>,
}

impl ToolArgs {
    /// The first given flag.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        let given = [
            (!self.tool.is_empty(), "--tool"),
            (!self.mcp_server.is_empty(), "--mcp-server"),
            (!self.mcp_tool.is_empty(), "--mcp-tool"),
            (!self.tool_env.is_empty(), "--tool-env"),
            (self.tool_timeout.is_some(), "--tool-timeout"),
        ];
        given
            .into_iter()
            .find_map(|(given, flag)| given.then_some(flag))
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Command(Vec<String>),
    Url(String),
}

fn tool(text: &str) -> Result<(ToolName, Vec<String>), String> {
    let (name, command) = text.split_once('=').ok_or("must be NAME=COMMAND")?;
    let name = ToolName::new(name).map_err(|error| error.to_string())?;
    Ok((name, words(command)?))
}

fn server(text: &str) -> Result<(String, Endpoint), String> {
    let (name, place) = text
        .split_once('=')
        .ok_or("must be NAME=COMMAND or NAME=URL")?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(valid) {
        return Err("the name of a server is letters, digits, `-` and `_`".into());
    }
    let url = place.starts_with("http://") || place.starts_with("https://");
    Ok((
        name.to_owned(),
        match url {
            true => Endpoint::Url(place.to_owned()),
            false => Endpoint::Command(words(place)?),
        },
    ))
}

fn renamed(text: &str) -> Result<(String, String, ToolName), String> {
    let (from, name) = match text.split_once('=') {
        Some((from, name)) => (from, Some(name)),
        None => (text, None),
    };
    let (server, tool) = from
        .split_once('.')
        .ok_or("must be SERVER.TOOL or SERVER.TOOL=NAME")?;
    let name = ToolName::new(name.unwrap_or(tool)).map_err(|error| error.to_string())?;
    Ok((server.to_owned(), tool.to_owned(), name))
}

fn variable(text: &str) -> Result<(String, Option<String>), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("must be NAME or NAME=VALUE".into()),
        Some((name, value)) => Ok((name.to_owned(), Some(value.to_owned()))),
        None => Ok((text.to_owned(), None)),
    }
}

fn words(command: &str) -> Result<Vec<String>, String> {
    brig_tool_sources::split(command).map_err(|error| error.to_string())
}

/// Show, check and call tools
///
/// Tools are commands of the host and tools of MCP servers: those of the flags, and those of your
/// configuration. They run outside of any sandbox, as you. Sandboxed code may call those that its policy lists.
#[derive(Args, Debug)]
#[command(after_long_help = "\
In $XDG_CONFIG_HOME/brig/config.yaml:

  tools:
    fetch_arxiv:
      command: [./fetch.sh]            # relative to the directory of the file
      description: Titles of the newest papers
      input_schema: {type: object, properties: {category: {type: string}}}
      timeout: 30s
      secrets: [ARXIV_TOKEN]           # from your environment
  mcp_servers:
    github:
      command: [npx, -y, '@modelcontextprotocol/server-github']
      tools: [list_issues, 'create_issue=open_issue']
      secrets: [GITHUB_PERSONAL_ACCESS_TOKEN]

Examples:
  brig tools ls --policy policy.yaml
  brig tools check --mcp-server time='uvx mcp-server-time'
  brig tools call fetch_arxiv '{\"category\": \"cs.CL\"}' --tool fetch_arxiv=./fetch.sh")]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    pub command: ToolsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    Ls(ToolsListArgs),
    Check(ToolsCheckArgs),
    Call(ToolsCallArgs),
}

/// List tools: where they come from, their schemas (--json), and whether a policy allows them
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig tools ls
  brig tools ls --policy policy.yaml --tool fetch_arxiv=./fetch.sh
  brig tools ls --json | jq '.tools[] | {name, input_schema}'")]
pub(crate) struct ToolsListArgs {
    #[command(flatten)]
    pub tools: ToolArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

/// Find every program, start every server, and report what is wrong
///
/// Exits with 0 if all tools can be registered and every tool of the policy is there, otherwise with 125.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig tools check
  brig tools check --policy policy.yaml
  brig tools check --mcp-server time='uvx mcp-server-time' --mcp-tool time.convert_time")]
pub(crate) struct ToolsCheckArgs {
    #[command(flatten)]
    pub tools: ToolArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

/// Call a tool by hand, outside of any sandbox
///
/// Prints its result: text as it is, everything else as JSON. With --policy, a tool that the policy does not
/// list and a call that its rules deny are refused. Nobody is asked to approve a call by hand.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig tools call fetch_arxiv '{\"category\": \"cs.CL\"}' --tool fetch_arxiv=./fetch.sh
  brig tools call get_current_time '{\"timezone\": \"UTC\"}' --mcp-server time='uvx mcp-server-time'
  brig tools call fetch_arxiv - <arguments.json")]
pub(crate) struct ToolsCallArgs {
    /// The name of the tool
    #[arg(value_name = "TOOL", add = ArgValueCompleter::new(complete::tools))]
    pub name: String,
    /// The arguments, a JSON object; `-` reads it from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    #[command(flatten)]
    pub tools: ToolArgs,
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    /// End the call after this time, unless the tool has its own
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "60s")]
    pub timeout: Duration,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub verbosity: VerbosityArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_tools_are_named_without_ambiguity() {
        let (name, endpoint) = server("time=uvx 'a b' --x=y").expect("a command");
        let words = ["uvx", "a b", "--x=y"].map(str::to_owned).to_vec();
        assert_eq!(
            (name.as_str(), endpoint),
            ("time", Endpoint::Command(words))
        );
        let url = "https://example.com/mcp?a=b";
        assert_eq!(
            server(&format!("x={url}")).expect("a URL").1,
            Endpoint::Url(url.into())
        );
        let (from, tool, name) = renamed("github.list.issues=issues").expect("renamed");
        assert_eq!(
            (&*from, &*tool, name.as_str()),
            ("github", "list.issues", "issues")
        );
        assert_eq!(renamed("a.b").expect("same").2.as_str(), "b");
        for bad in ["x", "=a", "a b=c", "x=a | b", "x="] {
            assert!(server(bad).is_err(), "{bad}");
        }
        // The `а` is Cyrillic.
        for bad in ["x", "fеtch=./x", "x='a", "=./x"] {
            assert!(super::tool(bad).is_err(), "{bad}");
        }
        assert!(renamed("a.b c").is_err() && renamed("a").is_err());
    }
}
