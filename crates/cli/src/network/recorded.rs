//! What is on record about the network.

use brig_audit::log::Cursor;
use brig_audit::{Egress, Event, Record};
use jiff::Timestamp;

use crate::failure::Failure;
use crate::{evidence, state};

/// A decision that is on record.
#[derive(Clone, Debug)]
pub struct Decided {
    pub at: Timestamp,
    pub agent: String,
    pub session: String,
    pub egress: Egress,
}

/// All decisions that somebody wants, in order. No log means no decisions.
pub fn decisions(mut wanted: impl FnMut(&Decided) -> bool) -> Result<Vec<Decided>, Failure> {
    let folder = evidence::folder(&state::folder()?);
    let mut found = Vec::new();
    if !folder.exists() {
        return Ok(found);
    }
    Cursor::new(&folder).read(|line| {
        // Cheaper than to read every record.
        if line.record.contains("\"egress_decided\"")
            && let Ok(record) = serde_json::from_str::<Record>(line.record)
            && let Event::EgressDecided(egress) = record.event
        {
            let decided = Decided {
                at: record.at,
                agent: record.agent,
                session: record.session,
                egress,
            };
            if wanted(&decided) {
                found.push(decided);
            }
        }
        true
    })?;
    Ok(found)
}
