use serde_json::json;

use super::find;
use crate::args::DestroyArgs;
use crate::failure::{self, Failure};
use crate::json;

pub async fn run(args: &DestroyArgs) -> Result<u8, Failure> {
    let sandbox = find::sandbox()?;
    let mut destroyed = Vec::new();
    for name in &args.sessions {
        match find::find(&sandbox, name) {
            Ok(info) => {
                sandbox.destroy_session(&info.agent, &info.id).await?;
                destroyed.push(json!({ "agent_id": info.agent, "session_id": info.id }));
            }
            Err(failure) if failure.code() == find::UNKNOWN => {
                failure::note(&format!("no session `{name}`"));
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.json {
        json::print(&json!({ "destroyed": destroyed }));
    }
    Ok(0)
}
