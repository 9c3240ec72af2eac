use std::path::Path;

use brig_audit::verify::{Expected, Flaw, Verified, verify};
use serde_json::json;

use super::{WRONG, keys};
use crate::args::VerifyArgs;
use crate::failure::{self, Failure};
use crate::{json, write_out};

pub fn run(path: &Path, args: &VerifyArgs) -> Result<u8, Failure> {
    let expected = Expected {
        head: args.head.as_deref().map(keys::text).transpose()?,
        key: args.key.as_deref().map(keys::read).transpose()?,
    };
    let fault = match verify(path, &expected) {
        Ok(verified) => return Ok(report(&verified, &expected, args.json)),
        Err(fault) => fault,
    };
    if let Flaw::Unreadable(_) = fault.flaw {
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
            "head": {
                "origin": verified.head.origin,
                "size": verified.head.size,
                "root": verified.head.root.base64(),
            },
        }));
        return 0;
    }
    if verified.unsigned > 0 {
        let count = verified.unsigned;
        failure::note(&format!("no head speaks for the last {count} records yet"));
    }
    if verified.unfinished > 0 {
        let bytes = verified.unfinished;
        failure::note(&format!(
            "{bytes} bytes at the end are no whole record; the next writer cuts them off"
        ));
    }
    if expected.head.is_none() {
        failure::note("without a head from elsewhere, a log that was replaced looks the same");
    }
    let text = format!(
        "ok: {} records in {} segments, signed up to record {}\n",
        verified.records,
        verified.segments,
        verified.head.size.saturating_sub(1),
    );
    write_out(text.as_bytes())
}
