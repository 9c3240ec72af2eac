use std::path::Path;

use brig_audit::verify::{Expected, Verified, VerifyErrorKind, verify, verify_since_last};
use serde_json::json;

use super::{WRONG, keys};
use crate::args::VerifyArgs;
use crate::failure::{self, Failure};
use crate::{json, units, write_out};

pub(crate) fn run(path: &Path, args: &VerifyArgs) -> Result<u8, Failure> {
    let expected = Expected {
        head: args.head.as_deref().map(keys::text).transpose()?,
        key: args.key.as_deref().map(keys::read).transpose()?,
    };
    let verified = match args.since_last {
        true => verify_since_last(path, &expected),
        false => verify(path, &expected),
    };
    let fault = match verified {
        Ok(verified) => return Ok(report(&verified, &expected, args.json)),
        Err(fault) => fault,
    };
    if let VerifyErrorKind::Unreadable(_) = fault.kind {
        return Err(fault.into());
    }
    if args.json {
        let (file, line) = fault.place.clone().unzip();
        json::print(&json!({
            "ok": false,
            "fault": {
                "code": fault.code(),
                "message": fault.to_string(),
                "record": fault.record,
                "file": file,
                "line": line,
            },
        }));
    }
    failure::error(&fault.to_string());
    Ok(WRONG)
}

fn report(verified: &Verified, expected: &Expected, as_json: bool) -> u8 {
    if as_json {
        json::print(&json!({
            "ok": true,
            "records": verified.records,
            "segments": verified.segments,
            "unsigned": verified.unsigned,
            "unfinished_bytes": verified.unfinished,
            "key_rotations": verified.rotations,
            "pruned": verified.pruned,
            "read_from": verified.read_from,
            "head": {
                "origin": verified.head.origin,
                "size": verified.head.size,
                "root": verified.head.root.base64(),
            },
        }));
        return 0;
    }
    if verified.unsigned > 0 {
        let records = units::count(verified.unsigned, "record");
        failure::note(&format!("no head covers the last {records} yet"));
    }
    if verified.unfinished > 0 {
        let bytes = units::count(verified.unfinished, "byte");
        failure::note(&format!(
            "an incomplete record of {bytes} is at the end; the next writer removes it"
        ));
    }
    if verified.read_from > verified.pruned {
        let (first, last) = (verified.pruned, verified.read_from - 1);
        failure::note(&format!(
            "records {first} to {last} were verified before and were not read again"
        ));
    }
    if verified.pruned > 0 {
        let records = units::count(verified.pruned, "record");
        failure::note(&format!("pruned from the start of the log: {records}"));
    }
    if expected.head.is_none() {
        failure::note(
            "without a head kept elsewhere, a log that was replaced as a whole cannot \
             be detected",
        );
    }
    let text = format!(
        "ok: {} in {}, signed up to record {}\n",
        units::count(verified.records, "record"),
        units::count(verified.segments, "segment"),
        verified.head.size.saturating_sub(1),
    );
    write_out(text.as_bytes())
}
