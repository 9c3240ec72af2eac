//! `brig session ls`.

use brig_sandbox::SessionInfo;
use serde_json::{Value, json};

use crate::args::ListArgs;
use crate::failure::{self, Failure};
use crate::{assemble, json, table, units, write_out};

pub(crate) fn run(args: &ListArgs) -> Result<u8, Failure> {
    let mut sessions = Vec::new();
    if let Some(all) = assemble::existing_sessions()? {
        sessions = all.list()?;
        for problem in all.unseen()? {
            failure::warning(&failure::without_numbers(&problem.to_string()));
        }
    }
    sessions.retain(|info| args.agent.as_ref().is_none_or(|agent| *agent == info.agent));
    if args.json {
        let sessions: Vec<Value> = sessions.iter().map(object).collect();
        json::print(&json!({ "sessions": sessions }));
        return Ok(0);
    }
    if sessions.is_empty() {
        failure::note("no sessions; `brig session create` creates one");
        return Ok(0);
    }
    let rows: Vec<[String; 6]> = sessions
        .iter()
        .map(|info| {
            [
                info.id.to_string(),
                info.agent.to_string(),
                info.status.name().into(),
                info.backend.clone(),
                units::size(info.bytes),
                time(info.created),
            ]
        })
        .collect();
    let heading = ["SESSION", "AGENT", "STATUS", "BACKEND", "SIZE", "CREATED"];
    Ok(write_out(table::text(heading, &rows).as_bytes()))
}

pub(crate) fn object(info: &SessionInfo) -> Value {
    json!({
        "agent_id": info.agent,
        "session_id": info.id,
        "status": info.status,
        "created": info.created,
        "backend": info.backend,
        "layers": info.layers,
        "bytes": info.bytes,
    })
}

/// To the second, in UTC.
pub(crate) fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}
