//! `brig prune`: removes what is no longer needed, except evidence.

use brig_sandbox::{Error, SessionInfo, Sessions};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::PruneAllArgs;
use crate::failure::{self, Failure};
use crate::session::{destroy, list};
use crate::{assemble, backend, doctor, json, table, units, write_out};

pub(crate) async fn run(args: &PruneAllArgs) -> u8 {
    attempt(args).await.unwrap_or_else(|failure| {
        failure.report(args.json);
        failure.exit()
    })
}

/// A session that was not used for a while.
struct Old {
    info: SessionInfo,
    used: Timestamp,
}

async fn attempt(args: &PruneAllArgs) -> Result<u8, Failure> {
    let mut removed = Vec::new();
    prune(args, &mut removed).await.map_err(|failure| {
        let destroyed = removed.iter().filter(|_| args.yes);
        let names = destroyed.map(|old| destroy::named(&old.info.agent, &old.info.id));
        failure.after(names.collect())
    })
}

async fn prune(args: &PruneAllArgs, removed: &mut Vec<Old>) -> Result<u8, Failure> {
    let sessions = assemble::sessions()?.collecting_later();
    let old = old(&sessions, args.before)?;
    let mut left = Vec::new();
    if args.yes {
        for old in old {
            let (agent, id) = (&old.info.agent, &old.info.id);
            match destroy::one_unused(&sessions, agent, id, args.before).await {
                Ok(()) => removed.push(old),
                Err(failure) if failure.is_busy() => {
                    failure::note(&format!("session `{id}` is in use now"));
                }
                Err(failure) => return Err(failure),
            }
        }
        left = sweep().await;
    } else {
        *removed = old;
    }
    let missing = match sessions.forget_missing(args.before, args.yes) {
        // The warning below says the same.
        Err(Error::Io { .. }) => Vec::new(),
        missing => missing?,
    };
    // Destroying a session removes its own; these were left by a crash.
    let (layers, layer_bytes) = match sessions.unused_layers() {
        Ok(unused) => unused,
        Err(error) => {
            failure::warning(&format!("no saved state can be removed: {error}"));
            (0, 0)
        }
    };
    if args.yes {
        sessions.remove_unused_layers()?;
    }
    let bytes = layer_bytes + removed.iter().map(|old| old.info.bytes).sum::<u64>();
    let log = doctor::log_bytes();
    if args.json {
        json::print(&json!({
            "removed": args.yes,
            "sessions": removed.iter().map(object).collect::<Vec<_>>(),
            "missing_sessions": missing.iter().map(|(agent, id, used)| json!({
                "agent_id": agent, "session_id": id, "used": used,
            })).collect::<Vec<_>>(),
            "layers": { "count": layers, "bytes": layer_bytes },
            "backends": left.iter().map(|(name, count)| json!({ "backend": name, "count": count }))
                .collect::<Vec<_>>(),
            "bytes": bytes,
            "audit_bytes": log,
        }));
        return Ok(0);
    }
    let mut rows: Vec<[String; 4]> = removed.iter().map(row).collect();
    for (agent, id, used) in &missing {
        let why = format!("not there, and last seen {}", list::time(*used));
        rows.push([
            "saved states".into(),
            format!("{agent}/{id}"),
            "-".into(),
            why,
        ]);
    }
    if layers > 0 {
        let count = units::count(layers, "saved state");
        let why = "nothing refers to them".into();
        rows.push(["layers".into(), count, units::size(layer_bytes), why]);
    }
    for (name, count) in left.iter().filter(|(_, count)| *count > 0) {
        let count = units::count(*count, "sandbox").replace("sandboxs", "sandboxes");
        let what = format!("{name} backend");
        rows.push([what, count, "-".into(), "of ended processes".into()]);
    }
    if rows.is_empty() {
        failure::note("nothing to remove");
    } else {
        write_out(table::text(["WHAT", "NAME", "SIZE", "WHY"], &rows).as_bytes());
        let verb = if args.yes { "freed" } else { "would free" };
        failure::note(&format!("{verb} up to {}", units::size(bytes)));
    }
    if let Some(log) = log {
        failure::note(&format!(
            "the audit log has {} and is kept; `brig audit prune --before 90d` removes old records",
            units::size(log)
        ));
    }
    if !args.yes {
        failure::hint(
            "nothing was removed; --yes removes it, and what ended processes left at the backends",
        );
    }
    Ok(0)
}

fn old(sessions: &Sessions, before: Timestamp) -> Result<Vec<Old>, Failure> {
    let mut old = Vec::new();
    for info in sessions.list()? {
        if let Some(used) = is_old(sessions, &info, before)? {
            old.push(Old { info, used });
        }
    }
    Ok(old)
}

/// When it was last used, if that is long ago.
fn is_old(
    sessions: &Sessions,
    info: &SessionInfo,
    before: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    match sessions.last_used(&info.agent, &info.id) {
        Ok(used) => Ok(used.filter(|used| *used < before)),
        // It was destroyed meanwhile.
        Err(Error::NoSession { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes what ended processes left at each backend that can be used.
async fn sweep() -> Vec<(String, usize)> {
    let mut left = Vec::new();
    for (id, opened) in backend::all().await {
        let Ok(backend) = opened else { continue };
        match backend.sweep().await {
            Ok(count) => left.push((id.to_string(), count)),
            Err(error) => failure::warning(&format!("{id}: {error}")),
        }
    }
    left
}

fn row(old: &Old) -> [String; 4] {
    let name = format!("{}/{}", old.info.agent, old.info.id);
    let used = format!("last used {}", list::time(old.used));
    ["session".into(), name, units::size(old.info.bytes), used]
}

fn object(old: &Old) -> Value {
    let mut object = list::object(&old.info);
    object["used"] = json!(old.used);
    object
}
