//! Tools of the host: for runs, and `brig tools`.

mod call;
mod servers;
mod show;
mod sources;

use std::path::Path;
use std::sync::Arc;

use brig_config::ToolSources;
use brig_policy::{Action, Decider, Decision, Map, PolicySet, Request as Question};
use brig_sandbox::{Arguments, SessionConfig, ToolRegistry};
use brig_tool_sources::Notify;

use crate::args::{ToolArgs, ToolsCommand};
use crate::failure::{self, Failure};
use servers::Servers;
use sources::Source;

pub(crate) async fn run(command: &ToolsCommand) -> u8 {
    match command {
        ToolsCommand::Ls(args) => show::list(args).await,
        ToolsCommand::Check(args) => show::check(args).await,
        ToolsCommand::Call(args) => call::run(args).await,
    }
}

/// Who calls, if no agent is named.
const DEFAULT_AGENT: &str = "default";

/// What a run may need of tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolRequest {
    pub flags: ToolArgs,
    /// Of an agent file that may have them.
    pub agent: ToolSources,
    /// Of the user's configuration.
    pub user: ToolSources,
}

/// Tools that are there.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub registry: ToolRegistry,
    servers: Servers,
}

impl Tools {
    /// Registers what the policies of a run list. Those of flags are always registered; those of the user's
    /// configuration only if a policy lists a tool that is missing, because servers take time to start.
    pub(crate) async fn for_run(
        request: &ToolRequest,
        config: &SessionConfig,
    ) -> Result<Self, Failure> {
        let listed = listed(config.policies().map(AsRef::as_ref));
        let mut tools = Self::default();
        let mut sources = sources::of_flags(&request.flags)?;
        sources.extend(sources::of_file(&request.agent)?);
        tools.add_all(sources, Some(config)).await?;
        if tools.lacks(&listed) {
            for source in sources::of_file(&request.user)? {
                if source.is_server() && !tools.lacks(&listed) {
                    continue;
                }
                tools.add_all(vec![source], Some(config)).await?;
            }
        }
        Ok(tools)
    }

    /// Registers everything.
    async fn all(request: &ToolRequest) -> Result<Self, Failure> {
        let mut tools = Self::default();
        let mut sources = sources::of_flags(&request.flags)?;
        sources.extend(sources::of_file(&request.user)?);
        tools.add_all(sources, None).await?;
        Ok(tools)
    }

    async fn add_all(
        &mut self,
        sources: Vec<Source>,
        config: Option<&SessionConfig>,
    ) -> Result<(), Failure> {
        for mut source in sources {
            if let Some(config) = config {
                source.keep_out_of_reach(config)?;
            }
            let added = self.add(source).await;
            if let Err(failure) = added {
                std::mem::take(&mut self.servers).close().await;
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn add(&mut self, source: Source) -> Result<(), Failure> {
        match source {
            Source::Command(tool) => self.registry.insert(tool.build(notify())?),
            Source::Server(server) => {
                let tools = self.servers.start(server, notify()).await?;
                (tools.into_iter()).try_for_each(|tool| self.registry.insert(tool))
            }
        }
        .map_err(|error| {
            Failure::usage(error.to_string())
                .with_hint("give one of them another name: --mcp-tool SERVER.TOOL=NAME")
        })
    }

    fn lacks(&self, listed: &[String]) -> bool {
        listed.iter().any(|name| self.registry.get(name).is_none())
    }

    /// Ends all servers, and returns when nothing of them is left.
    pub(crate) async fn close(self) {
        self.servers.close().await;
    }
}

/// The tools that any of the policies lists.
fn listed(policies: Option<&PolicySet>) -> Vec<String> {
    let documents = policies.into_iter().flat_map(PolicySet::documents);
    let names = documents.flat_map(|document| document.tool_allowlist());
    names.map(|name| name.value.clone()).collect()
}

/// What the rules answer to a call of it, as in the gate.
fn decide(policies: &PolicySet, name: &str, arguments: &Arguments) -> Decision {
    let text = serde_json::Value::Object(arguments.clone()).to_string();
    let arguments: Map = serde_json::from_str(&text).unwrap_or_default();
    policies.decide(&Question {
        tool: Some(name),
        tool_arguments: Some(&arguments),
        ..Question::new(DEFAULT_AGENT, Action::CallTool)
    })
}

/// Whether all policies list it.
fn is_listed(policies: &PolicySet, name: &str) -> bool {
    let lists = |list: &[brig_policy::Given<String>]| list.iter().any(|tool| tool.value == name);
    let mut documents = policies.documents().iter();
    documents.all(|document| lists(document.tool_allowlist()))
}

/// What the sandboxed code must not see, the operator does.
fn notify() -> Notify {
    Arc::new(|text: &str| failure::warning(text))
}

/// Where relative paths of flags begin.
fn here() -> &'static Path {
    Path::new(".")
}
