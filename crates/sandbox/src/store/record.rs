//! What is written about a session.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AgentId, SessionConfig, SessionId};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub version: u32,
    pub agent: AgentId,
    pub id: SessionId,
    pub created: Timestamp,
    pub backend: String,
    pub config: SessionConfig,
    /// What its files are stacked from, lowest first.
    pub layers: Vec<LayerRef>,
    /// The number of the folder that mirrors what lies above the layers. A new number is a new,
    /// empty folder, so that layers and head always change together.
    pub head: u64,
    /// The image that its files belong to, if they are changes of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

impl SessionRecord {
    pub const VERSION: u32 = 1;

    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRef {
    pub digest: LayerDigest,
    pub bytes: u64,
}

/// 64 hexadecimal digits, and not a path to somewhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct LayerDigest(String);

impl LayerDigest {
    pub fn as_str(&self) -> &str {
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
