//! `brig session create`.

use crate::args::CreateArgs;
use crate::assemble::{RunSpec, Storage, assemble};
use crate::failure::Failure;
use crate::tools::ToolRequest;
use crate::{json, user, write_out};

pub(crate) async fn run(args: &CreateArgs) -> Result<u8, Failure> {
    args.verbosity.apply();
    let store = user::store()?;
    let user = user::load(&store)?;
    let backend = args.config.backend(user.defaults(), None);
    let run = assemble(RunSpec {
        agent: args.config.agent(),
        backend: backend.to_owned(),
        config: args.config.session_config(user.defaults(), backend)?,
        policies: args.policies.files(user::default_policy(&store, &user))?,
        compat: args.policies.compat.compat(),
        layers: brig_config::layers(&[], &user, &args.config.allow),
        tools: ToolRequest {
            flags: args.tools.clone(),
            user: user.tools().clone(),
            ..ToolRequest::default()
        },
        // Nothing is run.
        approver: None,
        storage: Storage::Session,
    })
    .await?;
    let policies = run.config.policies().cloned();
    let session = run.create_session(args.id.clone()).await?;
    session.close().await?;
    if args.json {
        json::print(&serde_json::json!({
            "agent_id": session.agent(),
            "session_id": session.id(),
            "backend": backend,
            "enforcement": session.enforcement(),
            "policy": policies.map(|policies| policies.digest().to_string()),
        }));
        return Ok(0);
    }
    Ok(write_out(format!("{}\n", session.id()).as_bytes()))
}
