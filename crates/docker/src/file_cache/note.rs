//! What the volume of a session has, in a file of the session's directory.

use std::io;
use std::path::{Path, PathBuf};

use brig_sandbox::{Error, Result};
use brig_transfer::{CachedFile, FileIdentity};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;
const MOST_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    version: u32,
    /// Its name. Never used again.
    pub volume: String,
    /// Whether it is being changed, so that its content is not known.
    pub changing: bool,
    /// The name of the next file.
    pub next: u64,
    pub files: Vec<(FileIdentity, CachedFile)>,
}

impl Note {
    pub(super) fn new() -> Self {
        Self {
            version: VERSION,
            volume: format!("brig-cache-{}", uuid::Uuid::new_v4().simple()),
            changing: false,
            next: 0,
            files: Vec::new(),
        }
    }

    /// `None` if there is none that can be read.
    pub(super) fn read(session: &Path) -> Option<Self> {
        let path = path(session);
        let found = path.symlink_metadata().ok()?;
        if !found.is_file() || found.len() > MOST_BYTES {
            return None;
        }
        let text = std::fs::read(path).ok()?;
        let note: Self = serde_json::from_slice(&text).ok()?;
        let name = note.volume.strip_prefix("brig-cache-")?;
        let valid = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then_some(note)
    }

    pub(super) fn is_usable(&self, most_names: u64) -> bool {
        self.version == VERSION && !self.changing && self.next < most_names
    }

    /// Replaces it as a whole.
    pub(super) fn write(&self, session: &Path) -> Result<()> {
        let path = path(session);
        let next = path.with_extension("json.next");
        let write = || -> io::Result<()> {
            std::fs::write(&next, serde_json::to_vec(self)?)?;
            std::fs::rename(&next, &path)
        };
        write().map_err(|error| Error::io(format!("write {}", path.display()), error))
    }

    pub(super) fn remove(session: &Path) {
        let _ = std::fs::remove_file(path(session));
    }
}

pub(super) fn path(session: &Path) -> PathBuf {
    session.join("cache.json")
}
