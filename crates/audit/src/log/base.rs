//! The state of a log after its first records: all that is needed to go on without reading them.
//!
//! Signed with the log's key, it replaces records that were pruned, or that were verified
//! before. The two are different texts, so that neither can be taken for the other.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::directory::LogDirectory;
use super::error::{LogError, Result};
use crate::Hash;
use crate::canonical::to_canonical;
use crate::note::{self, NoteError, PublicKey, SecretKey};
use crate::tree::Frontier;

/// The name of the file, and the first line of its text.
pub(crate) const PRUNED: (&str, &str) = ("pruned", "brig pruned");
pub(crate) const VERIFIED: (&str, &str) = ("verified", "brig verified");

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Base {
    /// How many records it replaces.
    pub size: u64,
    /// The hash of the last of them.
    last: String,
    /// The roots of the full subtrees over them, the largest first.
    peaks: Vec<String>,
    /// The records among them that name keys, with their numbers.
    pub keys: Vec<(u64, String)>,
}

impl Base {
    pub(crate) fn new(frontier: &Frontier, last: &Hash, keys: Vec<(u64, String)>) -> Self {
        Self {
            size: frontier.size(),
            last: last.to_string(),
            peaks: frontier.peaks().iter().map(Hash::to_string).collect(),
            keys,
        }
    }

    pub(crate) fn last(&self) -> Option<Hash> {
        Hash::from_hex(self.last.as_bytes())
    }

    pub(crate) fn frontier(&self) -> Option<Frontier> {
        let peaks: Option<Vec<Hash>> = (self.peaks.iter())
            .map(|peak| Hash::from_hex(peak.as_bytes()))
            .collect();
        let peaks = peaks.filter(|peaks| peaks.len() == self.size.count_ones() as usize)?;
        Some(Frontier::new(self.size, peaks))
    }

    /// The base that the directory's records go on from, if some were pruned. Nothing vouches for it
    /// yet.
    pub(crate) fn of_pruned(directory: &LogDirectory) -> Result<Option<(Self, String)>> {
        let Some(note) = directory.read_text(PRUNED.0)? else {
            return Ok(None);
        };
        let base: Self = unverified(&note, PRUNED.1).map_err(LogError::Note)?;
        if base.frontier().is_none() || base.last().is_none() {
            return Err(LogError::Note(NoteError::Format("it contains no tree")));
        }
        Ok(Some((base, note)))
    }
}

/// A signed note with JSON as its text.
pub(crate) fn sign(what: &impl Serialize, purpose: &str, key: &SecretKey) -> Result<String> {
    Ok(key.sign_note(&format!("{purpose}\n{}\n", to_canonical(what)?)))
}

pub(crate) fn unverified<T: DeserializeOwned>(note: &str, purpose: &str) -> Result<T, NoteError> {
    let text = note::unverified_text(note)?;
    let json = text
        .strip_prefix(purpose)
        .and_then(|text| text.strip_prefix('\n'));
    let json = json.ok_or(NoteError::Format("it belongs to something else"))?;
    serde_json::from_str(json).map_err(|_| NoteError::Format("it is malformed"))
}

/// Whether one of the keys signed it.
pub(crate) fn is_signed<'a>(note: &str, keys: impl IntoIterator<Item = &'a PublicKey>) -> bool {
    keys.into_iter().any(|key| key.open(note).is_ok())
}
