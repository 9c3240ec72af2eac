//! Sources of tools, from flags and files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brig_config::{ConfiguredEndpoint, ConfiguredServer, ConfiguredTool, ToolSources};
use brig_reason::ReasonCode;
use brig_sandbox::{SessionConfig, Tool, ToolName};
use brig_tool_sources::{CommandTool, Notify, Program, SourceError};

use super::here;
use crate::args::{Endpoint, ToolArgs};
use crate::failure::Failure;

/// Something that provides tools, not yet started.
#[derive(Debug)]
pub(super) enum Source {
    Command(Command),
    Server(Server),
}

/// A command, and what a file says about it.
#[derive(Debug)]
pub(super) struct Command {
    name: ToolName,
    program: Program,
    about: Option<ConfiguredTool>,
    timeout: Option<Duration>,
}

/// An MCP server.
#[derive(Debug)]
pub(super) struct Server {
    pub name: String,
    pub transport: ServerTransport,
    pub tools: Vec<(String, ToolName)>,
    pub timeout: Option<Duration>,
    pub start_timeout: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum ServerTransport {
    Program(Program),
    Url(String, Vec<(String, String)>),
}

pub(super) fn of_flags(flags: &ToolArgs) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for (name, words) in &flags.tool {
        let program = program(words, here(), &flags.tool_env)?;
        let name = name.clone();
        sources.push(Source::Command(Command {
            name,
            program,
            about: None,
            timeout: flags.tool_timeout,
        }));
    }
    for (name, endpoint) in &flags.mcp_server {
        let transport = match endpoint {
            Endpoint::Url(url) => ServerTransport::Url(url.clone(), Vec::new()),
            Endpoint::Command(words) => {
                ServerTransport::Program(program(words, here(), &flags.tool_env)?)
            }
        };
        let chosen = flags.mcp_tool.iter().filter(|(server, ..)| server == name);
        sources.push(Source::Server(Server {
            name: name.clone(),
            transport,
            tools: chosen
                .map(|(_, tool, name)| (tool.clone(), name.clone()))
                .collect(),
            timeout: flags.tool_timeout,
            start_timeout: None,
        }));
    }
    let known = |server: &String| flags.mcp_server.iter().any(|(name, _)| name == server);
    match flags.mcp_tool.iter().find(|(server, ..)| !known(server)) {
        None => Ok(sources),
        Some((server, ..)) => Err(Failure::usage(format!(
            "--mcp-tool names the server `{server}`, but no --mcp-server does"
        ))),
    }
}

pub(super) fn of_file(file: &ToolSources) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for (name, tool) in &file.tools {
        let env = environment(&tool.env, &tool.secrets);
        sources.push(Source::Command(Command {
            name: tool_name(name)?,
            program: program(&tool.command, &file.directory, &env)?,
            about: Some(tool.clone()),
            timeout: tool.timeout,
        }));
    }
    for (name, server) in &file.servers {
        sources.push(Source::Server(configured(name, server, &file.directory)?));
    }
    Ok(sources)
}

fn configured(name: &str, server: &ConfiguredServer, directory: &Path) -> Result<Server, Failure> {
    let transport = match &server.endpoint {
        ConfiguredEndpoint::Url(url, headers) => {
            let headers = headers
                .iter()
                .map(|(name, value)| Ok((name.clone(), expand(value)?)));
            ServerTransport::Url(url.clone(), headers.collect::<Result<_, Failure>>()?)
        }
        ConfiguredEndpoint::Command(words) => {
            let env = environment(&server.env, &server.secrets);
            ServerTransport::Program(program(words, directory, &env)?)
        }
    };
    let tools = server
        .tools
        .iter()
        .map(|(tool, name)| Ok((tool.clone(), tool_name(name)?)));
    Ok(Server {
        name: name.to_owned(),
        transport,
        tools: tools.collect::<Result<_, Failure>>()?,
        timeout: server.timeout,
        start_timeout: server.start_timeout,
    })
}

type Variables = [(String, Option<String>)];

/// Variables with values, and those of the caller.
fn environment(env: &[(String, String)], secrets: &[String]) -> Vec<(String, Option<String>)> {
    let env = env
        .iter()
        .map(|(name, value)| (name.clone(), Some(value.clone())));
    env.chain(secrets.iter().map(|name| (name.clone(), None)))
        .collect()
}

fn program(words: &[String], directory: &Path, env: &Variables) -> Result<Program, Failure> {
    let mut program = Program::find(words, directory).map_err(failed)?;
    for (name, value) in env {
        match value {
            Some(value) => program.set(name, value),
            None => program.pass_on(name).map_err(failed)?,
        }
    }
    Ok(program)
}

/// `$NAME` at the end of a value, or alone, is a variable of the caller.
fn expand(value: &str) -> Result<String, Failure> {
    let Some((before, name)) = value.split_once('$') else {
        return Ok(value.to_owned());
    };
    match std::env::var(name) {
        Ok(secret) => Ok(format!("{before}{secret}")),
        Err(_) => Err(failed(SourceError::NoVariable(name.into()))),
    }
}

fn tool_name(name: &str) -> Result<ToolName, Failure> {
    ToolName::new(name).map_err(|error| Failure::usage(error.to_string()))
}

pub(super) fn failed(error: SourceError) -> Failure {
    let code = match &error {
        SourceError::Words(_) | SourceError::Schema { .. } => ReasonCode::InputUsage,
        SourceError::ServerTimeout { .. } => ReasonCode::ToolTimeout,
        _ => ReasonCode::ToolUnavailable,
    };
    let failure = Failure::new(code, error.to_string());
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

impl Source {
    pub(super) fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Command(tool) => tool.name.as_str(),
            Self::Server(server) => &server.name,
        }
    }

    /// Refuses programs that the code could change: it would run what it likes outside of the sandbox. In a
    /// directory that code may write to, programs find files of its choice, so they start elsewhere.
    pub(super) fn keep_out_of_reach(&mut self, config: &SessionConfig) -> Result<(), Failure> {
        let name = self.name().to_owned();
        let program = match self {
            Self::Command(tool) => &mut tool.program,
            Self::Server(Server {
                transport: ServerTransport::Program(program),
                ..
            }) => program,
            Self::Server(_) => return Ok(()),
        };
        let starts_here = config.writable_place(program.directory())?.is_none();
        for file in program.decisive_paths(starts_here) {
            if let Some(directory) = config.writable_place(&file)? {
                let message = format!(
                    "`{}` is run on the host for `{name}`, but the sandbox could change it: `{}` is writable",
                    file.display(),
                    directory.display()
                );
                return Err(Failure::new(ReasonCode::ToolWritable, message)
                    .with_hint("move it to another directory, or mount that directory read-only"));
            }
        }
        if !starts_here {
            program.start_in("/");
        }
        // Programs that it starts by name are not looked for where code could put them.
        let mut search = program.search_path();
        let before = search.len();
        search.retain(|directory| {
            directory.is_absolute()
                && (!directory.exists() || matches!(config.writable_place(directory), Ok(None)))
        });
        if search.len() < before
            && let Ok(path) = std::env::join_paths(search)
        {
            program.set("PATH", path);
        }
        Ok(())
    }
}

impl Command {
    pub(super) fn build(self, notify: Notify) -> Result<Arc<dyn Tool>, Failure> {
        let mut tool = CommandTool::new(self.name, self.program, notify);
        if let Some(after) = self.timeout {
            tool = tool.timeout(after);
        }
        if let Some(about) = self.about {
            tool = tool.description(about.description);
            if let Some(schema) = about.input_schema {
                tool = tool.input_schema(schema).map_err(failed)?;
            }
            if let Some(schema) = about.output_schema {
                tool = tool.output_schema(schema).map_err(failed)?;
            }
        }
        Ok(Arc::new(tool))
    }
}
