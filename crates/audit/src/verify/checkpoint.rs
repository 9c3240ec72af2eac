//! What was verified before, so that it need not be read again.
//!
//! The point is the beginning of the newest segment: those before it are never written again. They
//! are passed over as long as they are the same files, of the same length, and the kernel
//! reports no change since. Only a process that has the log's key can write such a checkpoint.

use serde::{Deserialize, Serialize};

use super::error::{VerifyError, VerifyErrorKind};
use super::keyring::Keyring;
use crate::log::{Base, Snapshot, VERIFIED, is_signed, sign, unverified};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Checkpoint {
    pub base: Base,
    segments: Vec<Seen>,
}

/// A segment as it was.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Seen {
    start: u64,
    length: u64,
    device: u64,
    inode: u64,
    /// When it was last changed. Text, because it does not fit into a number of JSON.
    changed: String,
}

impl Checkpoint {
    /// The checkpoint of the log, if it still holds. One that was changed is reported: somebody
    /// wanted something to be passed over.
    pub(super) fn load(snapshot: &Snapshot) -> Result<Option<Self>, VerifyError> {
        let Some(note) = snapshot.directory().read_text(VERIFIED.0)? else {
            return Ok(None);
        };
        let wrong = || VerifyError::of(VerifyErrorKind::Verified);
        let found: Self = unverified(&note, VERIFIED.1).map_err(|_| wrong())?;
        let keys = Keyring::replay(&found.base.keys).map_err(|_| wrong())?;
        if !is_signed(&note, keys.iter()) {
            return Err(wrong());
        }
        let holds = !found.segments.is_empty() && found.segments == seen(snapshot, found.base.size);
        Ok(holds.then_some(found))
    }

    /// Leaves a checkpoint for next time. If that can't be, the next time takes longer.
    pub(super) fn save(base: Base, snapshot: &Snapshot) {
        let segments = seen(snapshot, base.size);
        let Some(key) = snapshot.secret().filter(|_| !segments.is_empty()) else {
            return;
        };
        let found = Self { base, segments };
        let Ok(note) = sign(&found, VERIFIED.1, &key) else {
            return;
        };
        if let Ok(_guard) = snapshot.directory().lock() {
            let _ = snapshot.directory().replace(VERIFIED.0, note.as_bytes());
        }
    }
}

/// The segments before a record.
fn seen(snapshot: &Snapshot, size: u64) -> Vec<Seen> {
    let before = snapshot
        .segments()
        .iter()
        .filter(|piece| piece.start < size);
    before
        .map(|piece| Seen {
            start: piece.start,
            length: piece.length,
            device: piece.device,
            inode: piece.inode,
            changed: format!("{}.{:09}", piece.changed.0, piece.changed.1),
        })
        .collect()
}
