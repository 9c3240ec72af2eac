//! Saved states: `checkpoint`, `restore` and `fork`.

use brig_sandbox::Checkpoint;
use brig_sandbox::Session;
use serde_json::{Value, json};

use super::{find, list};
use crate::args::{CheckpointArgs, ForkArgs, RestoreArgs};
use crate::failure::{self, Failure};
use crate::{json, table, units, write_out};

pub async fn save(args: &CheckpointArgs) -> Result<u8, Failure> {
    let sandbox = find::sandbox()?;
    let session = find::open(&sandbox, &args.session).await?;
    let done = act(&session, args).await;
    session.close().await?;
    done
}

async fn act(session: &Session, args: &CheckpointArgs) -> Result<u8, Failure> {
    if let Some(name) = &args.remove {
        session.delete_checkpoint(name).await?;
        if args.json {
            json::print(&named(session, &json!({ "deleted": name })));
        }
    } else if let Some(name) = &args.name {
        let checkpoint = session.save_state(name).await?;
        if args.json {
            json::print(&named(session, &json!({ "checkpoint": checkpoint })));
        }
    } else {
        return Ok(show(session, &session.checkpoints()?, args.json));
    }
    Ok(0)
}

fn show(session: &Session, checkpoints: &[Checkpoint], as_json: bool) -> u8 {
    if as_json {
        json::print(&named(session, &json!({ "checkpoints": checkpoints })));
        return 0;
    }
    if checkpoints.is_empty() {
        failure::note(&format!(
            "no checkpoints; brig session checkpoint {} NAME",
            session.id()
        ));
        return 0;
    }
    write_out(lines(checkpoints).as_bytes())
}

pub fn lines(checkpoints: &[Checkpoint]) -> String {
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

pub async fn restore(args: &RestoreArgs) -> Result<u8, Failure> {
    let sandbox = find::sandbox()?;
    let session = find::open(&sandbox, &args.session).await?;
    let restored = session.restore_state(&args.name).await;
    session.close().await?;
    restored?;
    if args.json {
        json::print(&named(&session, &json!({ "restored": args.name })));
    }
    Ok(0)
}

pub async fn fork(args: &ForkArgs) -> Result<u8, Failure> {
    let sandbox = find::sandbox()?;
    let session = find::open(&sandbox, &args.session).await?;
    let forked = session.fork(&args.name, args.id.clone()).await;
    session.close().await?;
    let forked = forked?;
    forked.close().await?;
    if args.json {
        json::print(&named(&forked, &json!({ "forked_from": session.id() })));
        return Ok(0);
    }
    Ok(write_out(format!("{}\n", forked.id()).as_bytes()))
}

/// Whose it is, and what was done.
fn named(session: &Session, more: &Value) -> Value {
    let mut object = json!({ "agent_id": session.agent(), "session_id": session.id() });
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}
