//! Saved states: `checkpoint`, `restore` and `fork`.

use brig_sandbox::{AgentId, Checkpoint, Session, SessionDetails, SessionId, StateProblem};
use serde_json::{Value, json};

use super::list;
use crate::args::{CheckpointArgs, ForkArgs, RestoreArgs, SessionName};
use crate::failure::{self, Failure};
use crate::{assemble, json, table, units, write_out};

pub(crate) async fn save(args: &CheckpointArgs) -> Result<u8, Failure> {
    if args.list {
        return show(&args.session, args.json);
    }
    let session = assemble::open_session(&args.session).await?;
    let done = act(&session, args).await;
    session.close().await?;
    let done = done?;
    if args.json {
        json::print(&named(session.agent(), session.id(), &done));
    }
    Ok(0)
}

async fn act(session: &Session, args: &CheckpointArgs) -> Result<Value, Failure> {
    match (&args.name, &args.remove) {
        (_, Some(name)) => {
            session.delete_checkpoint(name).await?;
            Ok(json!({ "deleted": name }))
        }
        (Some(name), None) => {
            let checkpoint = session.save_state(name).await?;
            Ok(json!({ "checkpoint": checkpoint }))
        }
        (None, None) => Err(Failure::usage("no name given")),
    }
}

fn show(name: &SessionName, as_json: bool) -> Result<u8, Failure> {
    let (sessions, agent) = assemble::find_session(name)?;
    let SessionDetails {
        checkpoints,
        unreadable,
        ..
    } = sessions.inspect(&agent, &name.id)?;
    warn(&unreadable);
    if as_json {
        let list = json!({ "checkpoints": checkpoints, "unreadable": unreadable });
        json::print(&named(&agent, &name.id, &list));
        return Ok(0);
    }
    if checkpoints.is_empty() && unreadable.is_empty() {
        failure::note(&format!(
            "no checkpoints; `brig session checkpoint {} NAME` creates one",
            name.id
        ));
        return Ok(0);
    }
    Ok(write_out(lines(&checkpoints).as_bytes()))
}

/// Names checkpoints that can't be read.
pub(crate) fn warn(unreadable: &[StateProblem]) {
    for problem in unreadable {
        failure::warning(&failure::without_numbers(&problem.to_string()));
    }
    if !unreadable.is_empty() {
        failure::hint(
            "delete it with --rm, or put its file back; until then no saved state is removed",
        );
    }
}

pub(crate) fn lines(checkpoints: &[Checkpoint]) -> String {
    let rows: Vec<[String; 4]> = checkpoints
        .iter()
        .map(|checkpoint| {
            [
                checkpoint.name.to_string(),
                units::size(checkpoint.bytes),
                list::time(checkpoint.created),
                checkpoint.digest.clone(),
            ]
        })
        .collect();
    table::text(["CHECKPOINT", "SIZE", "CREATED", "DIGEST"], &rows)
}

pub(crate) async fn restore(args: &RestoreArgs) -> Result<u8, Failure> {
    let session = assemble::open_session(&args.session).await?;
    let restored = session.restore_state(&args.name).await;
    session.close().await?;
    restored?;
    if args.json {
        json::print(&named(
            session.agent(),
            session.id(),
            &json!({ "restored": args.name }),
        ));
    }
    Ok(0)
}

pub(crate) async fn fork(args: &ForkArgs) -> Result<u8, Failure> {
    let session = assemble::open_session(&args.session).await?;
    let forked = session.fork(&args.name, args.id.clone()).await;
    session.close().await?;
    let forked = forked?;
    forked.close().await?;
    if args.json {
        json::print(&named(
            forked.agent(),
            forked.id(),
            &json!({ "forked_from": session.id() }),
        ));
        return Ok(0);
    }
    Ok(write_out(format!("{}\n", forked.id()).as_bytes()))
}

/// The session, and what was done.
fn named(agent: &AgentId, session: &SessionId, more: &Value) -> Value {
    let mut object = json!({ "agent_id": agent, "session_id": session });
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}
