//! `brig session destroy`.

use brig_sandbox::{AgentId, Error, SessionId, SessionInfo, Sessions};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::DestroyArgs;
use crate::failure::{self, Failure};
use crate::{assemble, json, units};

pub(crate) async fn run(args: &DestroyArgs) -> Result<u8, Failure> {
    let mut destroyed = Vec::new();
    match assemble::existing_sessions()? {
        Some(sessions) => {
            let sessions = sessions.collecting_later();
            let done = each(&sessions, args, &mut destroyed).await;
            sessions.collect();
            done.map_err(|failure| failure.after(std::mem::take(&mut destroyed)))?;
        }
        None => (args.sessions.iter()).for_each(|name| unknown(&name.to_string())),
    }
    if args.json {
        json::print(&json!({ "destroyed": destroyed }));
    }
    Ok(0)
}

async fn each(
    sessions: &Sessions,
    args: &DestroyArgs,
    destroyed: &mut Vec<Value>,
) -> Result<(), Failure> {
    // What was destroyed with something left over does not stop the others.
    let mut left = Ok(());
    let mut ended = |agent: &AgentId, id: &SessionId, done: Result<(), Failure>| {
        let incomplete = done.as_ref().is_err_and(Failure::is_incomplete);
        if done.is_ok() || incomplete {
            destroyed.push(named(agent, id));
        }
        match done {
            Err(failure) if incomplete => {
                if left.is_ok() {
                    left = Err(failure);
                }
                Ok(())
            }
            done => done,
        }
    };
    if args.all {
        for info in all(sessions, args.yes)? {
            let done = one(sessions, &info.agent, &info.id).await;
            ended(&info.agent, &info.id, done)?;
        }
    }
    for name in &args.sessions {
        match sessions.find(name.agent.as_ref(), &name.id) {
            Ok(agent) => ended(&agent, &name.id, one(sessions, &agent, &name.id).await)?,
            Err(Error::SessionUnknown(name)) => unknown(&name),
            Err(error) => return Err(error.into()),
        }
    }
    left
}

fn unknown(name: &str) {
    failure::note(&format!("no session `{name}`"));
}

pub(crate) fn named(agent: &AgentId, id: &SessionId) -> Value {
    json!({ "agent_id": agent, "session_id": id })
}

fn all(sessions: &Sessions, confirmed: bool) -> Result<Vec<SessionInfo>, Failure> {
    let all = sessions.list()?;
    if confirmed {
        return Ok(all);
    }
    let count = units::count(all.len(), "session");
    Err(
        Failure::usage(format!("--all destroys {count}, with all files"))
            .with_hint("`brig session ls` lists them; confirm with --yes"),
    )
}

/// Destroys a session, also if its backend keeps a part of it.
pub(crate) async fn one(
    sessions: &Sessions,
    agent: &AgentId,
    id: &SessionId,
) -> Result<(), Failure> {
    match sessions.destroy(agent, id).await {
        Err(Error::OtherBackend { backend, .. }) => {
            let sandbox = assemble::sandbox_of(&backend).await?;
            sandbox.destroy_session(agent, id).await?;
        }
        done => {
            done?;
        }
    }
    Ok(())
}

/// The same, if it was not used since then.
pub(crate) async fn one_unused(
    sessions: &Sessions,
    agent: &AgentId,
    id: &SessionId,
    since: Timestamp,
) -> Result<(), Failure> {
    match sessions.destroy_unused(agent, id, since).await {
        Err(Error::OtherBackend { .. }) => one(sessions, agent, id).await,
        done => Ok(done.map(drop)?),
    }
}
