use crate::args::CreateArgs;
use crate::failure::Failure;
use crate::policy::load;
use crate::{backend, json, network, state, user, write_out};

pub async fn run(args: &CreateArgs) -> Result<u8, Failure> {
    let sandbox = state::sandbox(backend::choose(args.config.backend()).await?)?;
    let store = user::store()?;
    let user = user::load(&store)?;
    let mut config = args.config.session_config();
    let policies = load::under(&args.under)?;
    if let Some(policies) = &policies {
        config = config.under(policies.clone())?;
    }
    config.network = network::layered(config.network, &[], &user, &args.config.allow);
    user::keep_out(&config, &store)?;
    network::announce(&config.network, &args.config.allow);
    let session = sandbox
        .create_session(&args.config.agent(), args.id.clone(), config)
        .await?;
    session.close().await?;
    if args.json {
        json::print(&serde_json::json!({
            "agent_id": session.agent(),
            "session_id": session.id(),
            "backend": args.config.backend(),
            "enforcement": session.enforcement(),
            "policy": policies.map(|policies| policies.digest().to_string()),
        }));
        return Ok(0);
    }
    Ok(write_out(format!("{}\n", session.id()).as_bytes()))
}
