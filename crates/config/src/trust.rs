//! Agent files that the user has agreed to. What only the user may decide (no sandbox, addresses
//! that are not public, host directories, variables of the user, tools, more resources) a file gets by being
//! on this list, with exactly the text that was seen.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::source::Source;
use crate::store::Store;

/// Beside the configuration, where no sandbox can see it.
const NAME: &str = "trusted-agents.json";

/// A version of an agent file: its path, and the digest of it, of its policy, and of the host
/// directories that relative paths in the policy mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Absolute, without links.
    pub path: PathBuf,
    pub digest: String,
}

impl Identity {
    pub(crate) fn new(
        path: &Path,
        agent: &[u8],
        policy: Option<&[u8]>,
        relative: &[PathBuf],
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update((agent.len() as u64).to_be_bytes());
        hash.update(agent);
        hash.update(policy.unwrap_or_default());
        for directory in relative {
            hash.update(b"\0");
            hash.update(directory.as_os_str().as_encoded_bytes());
        }
        let digest = hash.finalize();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let whole = path.canonicalize().or_else(|_| std::path::absolute(path));
        Self {
            path: whole.unwrap_or_else(|_| path.to_owned()),
            digest: format!("sha256:{hex}"),
        }
    }
}

type List = BTreeMap<String, String>;

impl Store {
    fn trust_file(&self) -> PathBuf {
        self.path().with_file_name(NAME)
    }

    /// Whether the user has agreed to this file as it is now.
    pub fn trusts(&self, source: &dyn Source, file: &Identity) -> Result<bool> {
        let list = self.trusted(source)?;
        let known = file.path.to_str().and_then(|path| list.get(path));
        Ok(known == Some(&file.digest))
    }

    /// The list. One that can't be read is an error: it must not be taken for an empty one when
    /// it is about to be replaced.
    pub fn trusted(&self, source: &dyn Source) -> Result<List> {
        let path = self.trust_file();
        match source.read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| Error::unreadable(&path, io::Error::other(error))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                Ok(List::new())
            }
            Err(error) => Err(Error::unreadable(&path, error)),
        }
    }

    /// Adds a file to the list, or its new text. `record` is called before anything is changed.
    pub fn trust(
        &self,
        file: &Identity,
        record: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool> {
        let key = file.path.to_str().map(str::to_owned);
        let key = key
            .ok_or_else(|| Error::Alias(format!("`{}` cannot be written", file.path.display())))?;
        self.change_trusted(record, |list| {
            list.insert(key, file.digest.clone()).as_ref() != Some(&file.digest)
        })
    }

    /// Takes a file from the list. Says whether it was there.
    pub fn distrust(
        &self,
        path: &Path,
        record: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool> {
        let key = path.to_string_lossy().into_owned();
        self.change_trusted(record, |list| list.remove(&key).is_some())
    }

    fn change_trusted(
        &self,
        record: impl FnOnce() -> Result<(), String>,
        change: impl FnOnce(&mut List) -> bool,
    ) -> Result<bool> {
        let _lock = self.exclusive()?;
        let mut list = self.trusted(&crate::source::Disk)?;
        if !change(&mut list) {
            return Ok(false);
        }
        record().map_err(Error::Unrecorded)?;
        let path = self.trust_file();
        let text = serde_json::to_string_pretty(&list).unwrap_or_default() + "\n";
        crate::store::replace(&path, &text)?;
        Ok(true)
    }
}
