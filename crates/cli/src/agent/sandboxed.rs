//! An agent in a sandbox that is gone afterwards.

use std::sync::Arc;

use brig_config::{Run, Store};
use brig_policy::PolicySet;
use brig_sandbox::request::Work;
use brig_sandbox::{AgentId, Limit, Sandbox};

use crate::args::AgentRunArgs;
use crate::drive::drive;
use crate::failure::Failure;
use crate::policy::load;
use crate::run::{self, SITTING, Streams};
use crate::{backend, evidence, network, state, user};

pub async fn run(
    args: &AgentRunArgs,
    run: Run,
    command: Vec<String>,
    store: &Store,
) -> Result<u8, Failure> {
    let streams = Streams {
        stdin: args.interactive,
        terminal: args.tty,
    };
    let mut config = args.config.session_config();
    if args.tty && !config.limits.timeout.asked {
        config.limits.timeout = Limit::default_of(SITTING);
    }
    let named = args
        .config
        .backend
        .as_deref()
        .or(run.agent.backend.as_deref());
    let backend = backend::choose(named.unwrap_or("native")).await?;
    let mut documents = load::documents(&args.policy, args.compat.compat())?;
    documents.extend(run.policy);
    if !documents.is_empty() {
        config = config.under(Arc::new(PolicySet::new(documents)))?;
    }
    let agent_rules = &run.agent.network_allowlist;
    config.network = network::layered(config.network, agent_rules, &run.user, &args.config.allow);
    user::keep_out(&config, store)?;
    let new = [agent_rules.as_slice(), &args.config.allow].concat();
    network::announce(&config.network, &new);
    let agent: AgentId = match &args.config.agent {
        Some(agent) => agent.clone(),
        None => run.agent.name.parse()?,
    };
    let mut request = run::request(Work::Command(command), streams, &args.config.env);
    request.cwd.clone_from(&args.cwd);
    let folder = state::folder()?;
    let sandbox = Sandbox::builder(backend)
        .recorder(evidence::recorder(&folder)?)
        .private_dir(folder)
        .build()?;
    let start = sandbox.start_once(&agent, config, request);
    let finished = drive(start, run::attachment(streams, args.json)).await?;
    Ok(run::finish(&finished, streams, args.json, false))
}
