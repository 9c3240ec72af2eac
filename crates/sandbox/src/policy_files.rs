//! Policies from files of the host. Code must not be able to write, replace or redirect the files that
//! decide about it.

mod directory;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_policy::{Compat, Document, MAX_BYTES, PolicySet, Problem};

use self::directory::PolicyDirectory;
use crate::{Error, Location, Result, SessionConfig, follow, open_named};

/// The files whose policies a session is to run under.
#[derive(Clone, Debug, Default)]
pub struct PolicyFiles {
    files: Vec<PathBuf>,
    directory: Option<PolicyDirectory>,
    /// Read already, such as the policy of an agent file.
    documents: Vec<Arc<Document>>,
    /// The files that `documents` are from.
    origins: Vec<PathBuf>,
}

/// Policies that were read.
#[derive(Clone, Debug)]
pub struct LoadedPolicies {
    /// `None` if no files were named.
    pub policies: Option<Arc<PolicySet>>,
    /// What is valid but questionable.
    pub warnings: Vec<Problem>,
}

impl PolicyFiles {
    /// Policies that all apply.
    pub fn new<P: Into<PathBuf>>(files: impl IntoIterator<Item = P>) -> Self {
        Self {
            files: files.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The policies of directories: the `governance.yaml` of `root` and of every directory on the way
    /// down to `path`. Neither is found through a link that code may have created.
    ///
    /// # Errors
    ///
    /// There is no such policy, `path` is not below `root`, or a path cannot be followed.
    pub fn in_directory(root: &Path, path: &Path) -> Result<Self> {
        Ok(Self {
            directory: Some(PolicyDirectory::find(root, path)?),
            ..Self::default()
        })
    }

    /// Adds a policy that has been read already, and the files that it depends on.
    #[must_use]
    pub fn and(
        mut self,
        document: Option<Arc<Document>>,
        origins: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        self.documents.extend(document);
        self.origins.extend(origins);
        self
    }

    /// Refuses files that the code could change: those in a directory that is mounted writable, and
    /// those behind a link that code may have created.
    ///
    /// # Errors
    ///
    /// [`Error::PolicyWritable`], or a file cannot be found.
    pub fn check(&self, config: &SessionConfig) -> Result<()> {
        // A policy could also be added to the lowest directory.
        let lowest = self.directory.iter().map(PolicyDirectory::lowest);
        let files = self.paths().map(Path::to_owned).chain(lowest);
        for file in files.filter(|file| !brig_input::is_descriptor(file)) {
            if let Some(directory) = config.writable_place(&file)? {
                return Err(Error::PolicyWritable {
                    file: file.display().to_string(),
                    directory: directory.display().to_string(),
                });
            }
        }
        Ok(())
    }

    /// Reads the policies.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or [`Error::PolicyInvalid`] with the problems of all files.
    pub fn load(&self, compat: Compat) -> Result<LoadedPolicies> {
        let directory = self.directory.iter().flat_map(PolicyDirectory::files);
        let (mut documents, mut problems, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
        for file in self.files.iter().map(PathBuf::as_path).chain(directory) {
            let name = file.display().to_string();
            match Document::load(&name, read_policy(file)?, compat) {
                Ok(loaded) => {
                    problems.extend(loaded.warnings);
                    documents.push(loaded.document);
                }
                Err(found) => {
                    problems.extend(found.0);
                    invalid.push(name);
                }
            }
        }
        if !invalid.is_empty() {
            return Err(Error::PolicyInvalid {
                files: invalid,
                problems,
            });
        }
        documents.extend(self.documents.iter().cloned());
        let policies = match &self.directory {
            Some(directory) => Some(directory.set(&documents)?),
            None if documents.is_empty() => None,
            None => Some(PolicySet::new(documents)),
        };
        Ok(LoadedPolicies {
            policies: policies.map(Arc::new),
            warnings: problems,
        })
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let directory = self.directory.iter().flat_map(PolicyDirectory::files);
        let named = self.origins.iter().chain(&self.files);
        named.map(PathBuf::as_path).chain(directory)
    }
}

impl SessionConfig {
    /// The directory that code may write to and that this file or directory of the host is in, if there is one.
    ///
    /// # Errors
    ///
    /// It cannot be found, or is behind a link that code may have created.
    pub fn writable_place(&self, file: &Path) -> Result<Option<PathBuf>> {
        let mounts = self.mounts.iter().filter(|mount| mount.writable);
        let writable = mounts.map(|mount| &mount.source).chain(&self.workspace);
        let mut writable = writable.filter_map(|path| path.canonicalize().ok());
        let found = follow(file).map_err(|error| unreadable(file, &error))?;
        // By its place in the file system, too: a bind mount shows the same file by another path.
        let at = Location::of(&found).map_err(|error| unreadable(file, &error))?;
        Ok(writable.find(|directory| {
            found.starts_with(directory)
                || Location::of(directory).is_ok_and(|directory| at.is_below(&directory))
        }))
    }

    /// [`SessionConfig::under`] for policies in files, which must be out of reach of the session. Also
    /// returns warnings about the files.
    ///
    /// # Errors
    ///
    /// As [`PolicyFiles::check`], [`PolicyFiles::load`] and [`SessionConfig::under`].
    pub fn under_files(self, files: &PolicyFiles, compat: Compat) -> Result<(Self, Vec<Problem>)> {
        files.check(&self)?;
        let LoadedPolicies { policies, warnings } = files.load(compat)?;
        let Some(policies) = policies else {
            return Ok((self, warnings));
        };
        let config = self.under(policies)?;
        // The policies may mount more.
        files.check(&config)?;
        Ok((config, warnings))
    }
}

/// Reads a policy, but not much more than could be one: its document reports that it is too large.
///
/// # Errors
///
/// As [`open_named`].
pub fn read_policy(file: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    open_named(file)
        .and_then(|open| open.take(MAX_BYTES as u64 + 1).read_to_end(&mut text))
        .map_err(|error| unreadable(file, &error))?;
    Ok(text)
}

fn unreadable(file: &Path, error: &std::io::Error) -> Error {
    let text = error.to_string();
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_lowercase);
    Error::File {
        path: file.display().to_string(),
        problem: first.chain(chars.clone()).collect(),
    }
}

#[cfg(test)]
mod tests;
