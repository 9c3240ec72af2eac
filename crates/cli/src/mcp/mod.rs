//! `brig mcp`: the sandbox as tools of an agent.

mod config;

use std::io::IsTerminal;

use brig_mcp::{Ended, Setup};
use brig_sandbox::Attempted;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::args::{McpArgs, McpCommand};
use crate::assemble::{RunSpec, Storage, assemble};
use crate::denials::{Denials, RunKind};
use crate::failure::{self, Failure};
use crate::interrupt::Interrupts;
use crate::policy::load;
use crate::tools::{ToolRequest, Tools};
use crate::{approvals, exit, user};

pub(crate) async fn run(args: &McpArgs) -> u8 {
    args.verbosity.apply();
    let done = match &args.command {
        Some(McpCommand::Config(args)) => config::print(args),
        None => serve(args).await,
    };
    done.unwrap_or_else(|failure| {
        failure.show();
        failure.exit()
    })
}

/// Standard output carries the protocol and nothing else.
async fn serve(args: &McpArgs) -> Result<u8, Failure> {
    let (setup, tools) = setup(args).await?;
    let (stop, mut signal) = (CancellationToken::new(), 0);
    let mut interrupts = Interrupts::new().map_err(|error| io_failure(&error))?;
    if std::io::stdin().is_terminal() {
        failure::note("waiting for an MCP client on standard input");
        failure::hint("`brig mcp config CLIENT` prints how a client starts this command");
    }
    let mut serving = Box::pin(brig_mcp::serve_stdio(setup, stop.clone()));
    let ended = loop {
        tokio::select! {
            ended = &mut serving => break ended,
            number = interrupts.next() => {
                // The second one does not wait for the client. Sandboxes end with this process.
                if signal != 0 {
                    return Ok(exit::of_signal(number));
                }
                signal = number;
                stop.cancel();
            }
        }
    };
    tools.close().await;
    match ended.map_err(|error| protocol_failure(&error))? {
        Ended::Closed => Ok(0),
        Ended::Stopped => Ok(exit::of_signal(signal)),
    }
}

async fn setup(args: &McpArgs) -> Result<(Setup, Tools), Failure> {
    let store = user::store()?;
    let user = user::load(&store)?;
    let default = user::default_policy(&store, &user);
    let backend = args.config.backend(user.defaults(), None);
    let run = assemble(RunSpec {
        agent: args.config.agent(),
        backend: backend.to_owned(),
        config: args.config.session_config(user.defaults(), backend)?,
        policies: args.policies.files(default.clone())?,
        compat: args.policies.compat.compat(),
        layers: brig_config::layers(&[], &user, &args.config.allow),
        tools: ToolRequest {
            flags: args.tools.clone(),
            user: user.tools().clone(),
            ..ToolRequest::default()
        },
        // The model is never asked, and standard input is the client's.
        approver: Some(approvals::queue()?),
        // The sessions of a client end with it.
        storage: Storage::None,
    })
    .await?;
    let files = match &args.policies.directory.policy_root {
        Some(_) => vec!["the directory policies".to_owned()],
        None => (args.policies.policy.iter().chain(&default))
            .map(|file| format!("`{}`", file.display()))
            .collect(),
    };
    let (agent, config, sandbox, tools) = run.into_parts();
    // With the tools: what the policy lists and nobody registered is an error now, not in the first call.
    let plan = sandbox.plan(&config).await?;
    let setup = Setup {
        facts: load::extra(&args.facts)?,
        operator: (!files.is_empty()).then(|| {
            let files = files.join(", ");
            format!(
                "it is in {files}, and `brig policy explain` shows what would change the decision"
            )
        }),
        idle: args.session_idle,
        shown: args.show_output,
        denials,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sandbox,
        agent,
        config,
        plan,
    };
    Ok((setup, tools))
}

fn denials(attempted: &Attempted) -> Value {
    Denials::of(attempted).json(RunKind::Run)
}

fn io_failure(error: &std::io::Error) -> Failure {
    let problem = failure::describe(error);
    Failure::new(
        brig_reason::ReasonCode::IoFailed,
        format!("cannot listen for signals: {problem}"),
    )
}

fn protocol_failure(error: &std::io::Error) -> Failure {
    let problem = failure::describe(error);
    Failure::new(
        brig_reason::ReasonCode::IoFailed,
        format!("the client broke the protocol: {problem}"),
    )
}
