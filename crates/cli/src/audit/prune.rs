use std::path::Path;

use brig_audit::prune::{Pruned, Wanted, prune};
use serde_json::json;

use crate::args::PruneArgs;
use crate::failure::{self, Failure};
use crate::{json, recorder, units, write_out};

pub(crate) fn run(path: &Path, args: &PruneArgs) -> Result<u8, Failure> {
    let wanted = Wanted {
        dry_run: args.dry_run,
        keep_head: args.keep_head,
    };
    let pruned = prune(path, recorder::options()?, args.before, wanted)?;
    if args.json {
        json::print(&json!({
            "removed": !args.dry_run && pruned.segments > 0,
            "first": pruned.first,
            "records": pruned.records,
            "segments": pruned.segments,
            "bytes": pruned.bytes,
            "head": pruned.head,
        }));
        return Ok(0);
    }
    if pruned.segments == 0 {
        failure::note(
            "no segment is old enough to be removed as a whole; the newest segment is \
             always kept",
        );
        return Ok(0);
    }
    if pruned.head.is_some() {
        failure::note("their hashes are kept: earlier heads and proofs remain valid");
    }
    Ok(write_out(told(&pruned, args.dry_run).as_bytes()))
}

fn told(pruned: &Pruned, dry_run: bool) -> String {
    format!(
        "{} {} in {}, {}; the log begins with record {}\n",
        if dry_run { "would remove" } else { "removed" },
        units::count(pruned.records, "record"),
        units::count(pruned.segments, "segment"),
        units::size(pruned.bytes),
        pruned.first,
    )
}
