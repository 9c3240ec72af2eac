//! The record of a session on disk.

use std::fmt;
use std::io;
use std::path::Path;

use brig_audit::Hash;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::atomic::read_bytes;
use crate::backend::{Options, Snapshot};
use crate::{AgentId, BackendId, ControlState, SessionConfig, SessionId};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub version: u32,
    pub agent: AgentId,
    pub id: SessionId,
    pub created: Timestamp,
    pub backend: BackendId,
    pub config: SessionConfig,
    /// What its files are stacked from, lowest first.
    pub layers: Vec<LayerRef>,
    /// The number of the directory that mirrors what is above the layers. A new number is a new,
    /// empty directory, so that layers and head always change together.
    pub head: u64,
    /// Options that its files depend on, in place of those of the config.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub pinned: Options,
    /// The backend keeps the files: layers and head are references to snapshots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
    /// What enforced its controls when it was created.
    #[serde(default)]
    pub enforcement: Vec<ControlState>,
}

impl SessionRecord {
    pub(crate) const VERSION: u32 = 2;

    /// Also reads version 1, which had the options of the docker backend as settings of their own.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let bytes = read_bytes(path)?;
        let mut record: Self = serde_json::from_slice(&bytes)?;
        if record.version == 1 {
            let old: Version1 = serde_json::from_slice(&bytes)?;
            let options = &mut record.config.options;
            options.extend(old.config.image.map(|image| ("image".into(), image)));
            options.extend(
                old.config
                    .runtime
                    .map(|runtime| ("runtime".into(), runtime)),
            );
            let pinned = old.base.map(|image| ("image".into(), image));
            record.pinned.extend(pinned);
            record.version = Self::VERSION;
        }
        if record.version != Self::VERSION {
            let problem = format!(
                "it was written in the unsupported format {}",
                record.version
            );
            return Err(io::Error::other(problem));
        }
        Ok(record)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }
}

#[derive(Deserialize)]
struct Version1 {
    config: Config1,
    base: Option<String>,
}

#[derive(Deserialize)]
struct Config1 {
    image: Option<String>,
    runtime: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRef {
    pub digest: LayerDigest,
    pub bytes: u64,
    /// Kept by the backend. Otherwise it is a directory of that digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

impl LayerRef {
    pub(crate) fn of(snapshot: Snapshot) -> Self {
        let Snapshot { handle, digest, .. } = &snapshot;
        let text = format!("brig snapshot 1\n{}\n{handle}\n{digest}\n", handle.len());
        let digest = LayerDigest(Hash::of(text.as_bytes()).to_string());
        Self {
            digest,
            bytes: snapshot.bytes,
            snapshot: Some(snapshot),
        }
    }
}

/// 64 hexadecimal digits, and not a path to somewhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct LayerDigest(String);

impl LayerDigest {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LayerDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(hex) {
            Ok(Self(text))
        } else {
            Err(format!("`{}` is not a digest", text.escape_debug()))
        }
    }
}

impl From<LayerDigest> for String {
    fn from(digest: LayerDigest) -> String {
        digest.0
    }
}

impl fmt::Display for LayerDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
