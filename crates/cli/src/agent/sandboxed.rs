//! An agent in a sandbox that is removed afterwards.

use brig_config::{Disk, Run, Store};
use brig_sandbox::request::Work;

use super::runtime;
use crate::args::AgentRunArgs;
use crate::assemble::{RunSpec, Storage, assemble};
use crate::denials::RunKind;
use crate::drive::{self, Attachment};
use crate::failure::Failure;
use crate::tools::ToolRequest;
use crate::{answer, approvals, user};

pub(crate) async fn run(
    args: &AgentRunArgs,
    run: Run,
    command: Vec<String>,
    store: &Store,
) -> Result<u8, Failure> {
    let attachment = Attachment::new(args.interactive, args.tty, args.json)?;
    let defaults = runtime::defaults(args, &run, store)?;
    let backend = (args.config).backend(&defaults, run.agent.backend.as_deref());
    let mut config = args.config.session_config(&defaults, backend)?;
    runtime::add(&run, &mut config)?;
    let env = config.env.clone();
    drive::default_to_no_timeout(&mut config);
    let layers = run.network_layers(&Disk, store, &args.config.allow);
    let assembled = assemble(RunSpec {
        agent: match &args.config.agent {
            Some(agent) => agent.clone(),
            None => run.agent.name.parse()?,
        },
        backend: backend.to_owned(),
        config,
        policies: super::policies(args, &run, store),
        compat: args.compat.compat(),
        layers: layers.map_err(user::failed)?,
        tools: ToolRequest {
            flags: args.tools.clone(),
            agent: run.agent.tools.clone(),
            user: run.user.tools().clone(),
        },
        approver: approvals::approver(args.approvals.approvals, attachment)?,
        storage: Storage::None,
    })
    .await?;
    let work = Work::Command(command);
    let request = attachment.request(work, &env, args.cwd.as_ref());
    let finished = assembled.run_once(request, attachment).await?;
    Ok(answer::finished(&finished, args.json, RunKind::Run))
}
