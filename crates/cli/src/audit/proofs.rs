use std::path::{Path, PathBuf};

use brig_audit::log::{Cursor, Snapshot};
use brig_audit::proof::{self, Proof, Proved};
use brig_audit::{Hash, LogError};
use brig_reason::ReasonCode;
use serde_json::{Value, json};

use super::{WRONG, keys};
use crate::args::{CheckProofArgs, ConsistencyArgs, ProveArgs};
use crate::failure::{self, Failure};
use crate::{json, units, write_out};

pub(crate) fn prove(path: &Path, args: &ProveArgs) -> Result<u8, Failure> {
    let proof = proof::prove(path, find(path, &args.record)?)?;
    json::print(&value(&proof));
    Ok(0)
}

fn value(proof: &Proof) -> Value {
    serde_json::to_value(proof).unwrap_or_default()
}

/// The number of the record that the argument names.
fn find(path: &Path, record: &str) -> Result<u64, Failure> {
    let snapshot = Snapshot::open(path)?;
    // The id of an execution may be all digits too; there are never that many records.
    if let Ok(seq) = record.parse()
        && (record.len() < 12 || snapshot.line(seq).is_ok())
    {
        return Ok(seq);
    }
    let hash = Hash::from_hex(record.as_bytes());
    let (quoted, mut found) = (format!("\"execution\":{},", Value::from(record)), None);
    Cursor::new(path).read(|line| {
        let meant = match hash {
            Some(hash) => line.hash == hash,
            None => line.record.contains(&quoted) && line.record.contains("\"event\":\"receipt\""),
        };
        if meant {
            found = Some(line.seq);
        }
        !meant
    })?;
    found.ok_or_else(|| {
        Failure::new(
            ReasonCode::AuditNoRecord,
            format!("no record `{record}`, and no execution with this id that has a receipt"),
        )
        .with_hint("run `brig audit show` to list them")
    })
}

pub(crate) fn check(
    log: impl FnOnce() -> Result<PathBuf, Failure>,
    args: &CheckProofArgs,
) -> Result<u8, Failure> {
    let text = keys::text(&args.proof)?;
    let keys = match &args.key {
        Some(path) => vec![keys::read(path)?],
        None => keys::given_or_of(None, &log()?)?,
    };
    let checked = serde_json::from_str::<Proof>(&text)
        .map_err(|_| LogError::Proof("it is not a proof"))
        .and_then(|proof| proof.check(&keys));
    let (summary, object) = match checked {
        Ok(Proved::Included { seq, hash, head }) => (
            format!(
                "record {seq} is in the log {} of {}",
                head.origin,
                units::count(head.size, "record")
            ),
            json!({
                "ok": true,
                "record": seq,
                "hash": hash.to_string(),
                "origin": head.origin,
                "size": head.size,
            }),
        ),
        Ok(Proved::Consistent { old, new }) => (
            format!(
                "the first {} of the log {} of {} are the log of the older head",
                old.size,
                new.origin,
                units::count(new.size, "record")
            ),
            json!({ "ok": true, "origin": new.origin, "old": old.size, "new": new.size }),
        ),
        Err(error) => return Ok(wrong(&error, args.json)),
    };
    if args.json {
        json::print(&object);
        return Ok(0);
    }
    Ok(write_out(format!("ok: {summary}\n").as_bytes()))
}

fn wrong(error: &LogError, as_json: bool) -> u8 {
    if as_json {
        let fault = json!({ "code": error.code(), "message": error.to_string() });
        json::print(&json!({ "ok": false, "fault": fault }));
    }
    failure::error(&error.to_string());
    WRONG
}

pub(crate) fn consistency(path: &Path, args: &ConsistencyArgs) -> Result<u8, Failure> {
    let (old, new) = (keys::text(&args.old)?, keys::text(&args.new)?);
    let keys = keys::given_or_of(args.key.as_deref(), path)?;
    let proof = proof::prove_consistency(path, &old, &new)
        .and_then(|proof| proof.check(&keys).map(|proved| (proof, proved)));
    match proof {
        Ok((proof, Proved::Consistent { .. })) if args.json => json::print(&value(&proof)),
        Ok((_, Proved::Consistent { old, new })) => {
            let text = format!(
                "ok: the first {} of {} are the log of the older head\n",
                old.size,
                units::count(new.size, "record")
            );
            return Ok(write_out(text.as_bytes()));
        }
        Ok(_) => {}
        Err(error @ (LogError::Proof(_) | LogError::Note(_))) => {
            return Ok(wrong(&error, args.json));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(0)
}
