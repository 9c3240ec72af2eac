//! Removing the oldest records, so that everything that is left can still be proved.
//!
//! Whole segments are removed. A signed summary stays: the tree over them and the keys
//! that were named in them. The leaves of the tree stay too, so every head from before can still
//! be shown to be the beginning of the log; only the contents of the removed records are gone.

use std::path::Path;

use jiff::Timestamp;

use crate::line::Line;
use crate::log::{Log, LogError, Options, Snapshot};
use crate::verify::{self, Expected, VerifyError, VerifyErrorKind};

/// What was removed, or would be.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// All records before this one are gone.
    pub first: u64,
    /// How many of them were there before.
    pub records: u64,
    /// How many files were removed.
    pub segments: usize,
    /// The size of these files.
    pub bytes: u64,
    /// The signed head after that.
    pub head: Option<String>,
}

/// Options of a prune.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Only report what would be removed.
    pub dry_run: bool,
    /// Keep the previous signed head, as `head-SIZE` in the directory of the log.
    pub keep_head: bool,
}

/// Removes the segments whose records are all older than a moment. The log is verified first: one
/// that is damaged stays as it is. The newest segment is never removed.
pub fn prune(
    path: impl AsRef<Path>,
    options: Options,
    before: Timestamp,
    wanted: Wanted,
) -> Result<Pruned, VerifyError> {
    let path = path.as_ref();
    let snapshot = Snapshot::open(path)?;
    let signed = snapshot.parsed_head()?.size;
    let mut pruned = Pruned {
        first: snapshot.first(),
        records: 0,
        segments: 0,
        bytes: 0,
        head: None,
    };
    for pair in snapshot.segments().windows(2) {
        let [old, next] = pair else { break };
        if next.start > signed || time_of(&snapshot, next.start - 1)? >= before {
            break;
        }
        pruned.records += next.start - old.start;
        pruned.first = next.start;
        pruned.segments += 1;
        pruned.bytes += old.length;
    }
    if wanted.dry_run || pruned.segments == 0 {
        return Ok(pruned);
    }
    let (_, base) = verify::from(&snapshot, None, &Expected::default(), Some(pruned.first))?;
    let base = base.ok_or_else(|| {
        VerifyError::of(VerifyErrorKind::Pruned("no segment begins there".into()))
    })?;
    pruned.head = Some(Log::open(path, options)?.prune(&base, wanted.keep_head)?);
    Ok(pruned)
}

fn time_of(snapshot: &Snapshot, seq: u64) -> Result<Timestamp, LogError> {
    let mut bytes = snapshot.line(seq)?;
    let wrong = || LogError::damaged(seq, "it was changed");
    let line = Line::check(&mut bytes).map_err(|_| wrong())?;
    let value: serde_json::Value = serde_json::from_str(line.record).map_err(|_| wrong())?;
    let at = value.get("at").and_then(serde_json::Value::as_str);
    at.and_then(|at| at.parse().ok()).ok_or_else(wrong)
}
