//! Network decisions in the audit log.

use brig_audit::log::Cursor;
use brig_audit::{Egress, Event, Record};
use jiff::Timestamp;

use crate::failure::Failure;
use crate::state;

#[derive(Clone, Debug)]
pub(crate) struct RecordedDecision {
    pub at: Timestamp,
    pub agent: String,
    pub session: String,
    pub execution: Option<String>,
    pub egress: Egress,
}

/// An execution in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedExecution {
    pub agent: String,
    pub session: String,
    pub id: String,
}

/// The last execution that is `wanted`, whether it was allowed to start or not.
pub(crate) fn last_execution(
    wanted: impl Fn(&RecordedExecution) -> bool,
) -> Result<Option<RecordedExecution>, Failure> {
    let mut last = None;
    each("\"decided\"", |record| {
        if let (Event::Decided { .. }, Some(id)) = (&record.event, record.execution) {
            let found = RecordedExecution {
                agent: record.agent,
                session: record.session,
                id,
            };
            if wanted(&found) {
                last = Some(found);
            }
        }
    })?;
    Ok(last)
}

/// All decisions that are `wanted`, in order. Without a log there are none.
pub(crate) fn decisions(
    mut wanted: impl FnMut(&RecordedDecision) -> bool,
) -> Result<Vec<RecordedDecision>, Failure> {
    let mut found = Vec::new();
    each("\"egress_decided\"", |record| {
        if let Event::EgressDecided(egress) = record.event {
            let decided = RecordedDecision {
                at: record.at,
                agent: record.agent,
                session: record.session,
                execution: record.execution,
                egress,
            };
            if wanted(&decided) {
                found.push(decided);
            }
        }
    })?;
    Ok(found)
}

/// All records that contain `text`, which is cheaper than to parse every one.
fn each(text: &str, mut take: impl FnMut(Record)) -> Result<(), Failure> {
    let folder = state::audit_directory(&state::directory()?);
    if !folder.exists() {
        return Ok(());
    }
    Cursor::new(&folder).read(|line| {
        if line.record.contains(text)
            && let Ok(record) = serde_json::from_str::<Record>(line.record)
        {
            take(record);
        }
        true
    })?;
    Ok(())
}
