//! Proofs that can be checked without the log: with a signed head and a public key.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::to_canonical;
use crate::line::Line;
use crate::log::{LogError, Result, Snapshot, rebuilt_nodes};
use crate::note::PublicKey;
use crate::tree::{self, Nodes};
use crate::{Hash, Head};

/// A proof as it is stored: JSON with signed heads in it. It proves nothing before [`check`](Self::check).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "proof", rename_all = "snake_case", deny_unknown_fields)]
pub enum Proof {
    /// A record is in the log that the head signs.
    Inclusion {
        /// The line of the record.
        line: Value,
        /// The siblings on the path to the root, the lowest first.
        path: Vec<String>,
        /// The signed head.
        head: String,
    },
    /// The log that the new head signs begins with the log that the old head signs.
    Consistency {
        /// The older signed head.
        old: String,
        /// The newer signed head.
        new: String,
        /// The nodes of RFC 6962 in base64, the lowest first.
        path: Vec<String>,
    },
}

/// What a valid proof proves.
#[derive(Clone, Debug)]
pub enum Proved {
    /// The record is in the log.
    Included {
        /// The number of the record.
        seq: u64,
        /// The hash of its line.
        hash: Hash,
        /// The head that covers it.
        head: Head,
    },
    /// The newer log only adds records to the older one.
    Consistent {
        /// The head of the older log.
        old: Head,
        /// The head of the newer log.
        new: Head,
    },
}

/// Proves that a record is in the log, under its newest signed head.
pub fn prove(path: impl AsRef<Path>, seq: u64) -> Result<Proof> {
    let snapshot = Snapshot::open(path)?;
    let head = snapshot.parsed_head()?;
    if seq >= head.size {
        return Err(LogError::NoRecord(seq));
    }
    let mut bytes = snapshot.line(seq)?;
    let hash = match Line::check(&mut bytes) {
        Ok(line) if line.seq == seq => line.hash,
        _ => return Err(LogError::damaged(seq, "it was changed")),
    };
    let path = with_nodes(&snapshot, |nodes| {
        let path = tree::inclusion(nodes, seq, head.size).ok()?;
        tree::verify_inclusion(&hash, seq, head.size, &path, &head.root).then_some(path)
    })?;
    let line = serde_json::from_slice(&bytes).map_err(|_| LogError::damaged(seq, "not JSON"))?;
    Ok(Proof::Inclusion {
        line,
        path: texts(&path),
        head: snapshot.head().unwrap_or_default().to_owned(),
    })
}

/// Proves that the log under one head is the beginning of the log under another.
pub fn prove_consistency(path: impl AsRef<Path>, old: &str, new: &str) -> Result<Proof> {
    let snapshot = Snapshot::open(path)?;
    let (a, b) = (Head::unverified(old)?, Head::unverified(new)?);
    if a.origin != b.origin || a.size > b.size {
        return Err(LogError::Proof(
            "the new head does not come after the old one",
        ));
    }
    if b.size > snapshot.parsed_head()?.size {
        return Err(LogError::Proof(
            "the log has fewer records than the new head",
        ));
    }
    let path = with_nodes(&snapshot, |nodes| {
        let path = tree::consistency(nodes, a.size, b.size).ok()?;
        tree::verify_consistency(a.size, &a.root, b.size, &b.root, &path).then_some(path)
    })?;
    Ok(Proof::Consistency {
        old: old.to_owned(),
        new: new.to_owned(),
        path: texts(&path),
    })
}

/// The stored tree may be out of date after a crash; then it is made again, for this once.
fn with_nodes(
    snapshot: &Snapshot,
    work: impl Fn(&dyn Nodes) -> Option<Vec<Hash>>,
) -> Result<Vec<Hash>> {
    if let Some(path) = snapshot.nodes().ok().and_then(|nodes| work(&nodes)) {
        return Ok(path);
    }
    let nodes = rebuilt_nodes(snapshot)?;
    work(&nodes).ok_or(LogError::Proof("the log does not match the heads"))
}

fn texts(path: &[Hash]) -> Vec<String> {
    path.iter().map(Hash::base64).collect()
}

fn hashes(path: &[String]) -> Result<Vec<Hash>> {
    path.iter()
        .map(|text| Hash::from_base64(text).ok_or(LogError::Proof("its path is malformed")))
        .collect()
}

/// The head in a note that one of the keys has signed.
pub fn open(note: &str, keys: &[PublicKey]) -> Result<Head> {
    let mut last = None;
    for key in keys {
        match Head::open(note, key) {
            Ok(head) => return Ok(head),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(
        LogError::Proof("there is no key to check it with"),
        LogError::from,
    ))
}

impl Proof {
    /// Checks the proof with nothing but the public key, or keys if it was changed.
    pub fn check(&self, keys: &[PublicKey]) -> Result<Proved> {
        match self {
            Self::Inclusion { line, path, head } => {
                let head = open(head, keys)?;
                let mut bytes = to_canonical(line)?.into_bytes();
                let line = Line::check(&mut bytes)
                    .map_err(|_| LogError::Proof("the record does not match its hash"))?;
                let (seq, hash) = (line.seq, line.hash);
                if !tree::verify_inclusion(&hash, seq, head.size, &hashes(path)?, &head.root) {
                    return Err(LogError::Proof("the record is not in the log of this head"));
                }
                Ok(Proved::Included { seq, hash, head })
            }
            Self::Consistency { old, new, path } => {
                let (old, new) = (open(old, keys)?, open(new, keys)?);
                let path = hashes(path)?;
                if !tree::verify_consistency(old.size, &old.root, new.size, &new.root, &path) {
                    return Err(LogError::Proof(
                        "the new log does not begin with the old one",
                    ));
                }
                Ok(Proved::Consistent { old, new })
            }
        }
    }
}
