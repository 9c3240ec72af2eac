//! Policies of directories: those from a root down to a path.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use brig_policy::{Document, GOVERNANCE_FILES, PolicySet};

use super::unreadable;
use crate::{Error, Result, follow};

/// The policies on the way down, and the path below the root that they are for.
#[derive(Clone, Debug)]
pub(super) struct PolicyDirectory {
    root: PathBuf,
    files: Vec<PathBuf>,
    path: String,
}

impl PolicyDirectory {
    /// Whoever names a root wants a policy, so it is an error if there is none.
    pub(super) fn find(root: &Path, asked: &Path) -> Result<Self> {
        let root = follow(root).map_err(|error| unreadable(root, &error))?;
        let path = resolve(asked)?;
        let Ok(below) = path.strip_prefix(&root) else {
            let problem = format!("`{}` is not below `{}`", asked.display(), root.display());
            return Err(Error::NoGovernance(problem));
        };
        let name = match below.to_str() {
            Some("") => ".".to_owned(),
            Some(name) => name.to_owned(),
            None => {
                let problem = format!("`{}` is not UTF-8", asked.display());
                return Err(Error::NoGovernance(problem));
            }
        };
        let directory = if path.is_dir() {
            below
        } else {
            below.parent().unwrap_or(below)
        };
        let mut directories: Vec<&Path> = directory.ancestors().collect();
        directories.reverse();
        let files: Vec<PathBuf> = (directories.into_iter())
            .filter_map(|directory| governance_file(&root.join(directory)))
            .collect();
        if files.is_empty() {
            return Err(Error::NoGovernance(format!(
                "there is no {} from `{}` down to `{name}`",
                GOVERNANCE_FILES[0],
                root.display(),
            )));
        }
        Ok(Self {
            root,
            files,
            path: name,
        })
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The lowest directory that exists on the way down.
    pub(super) fn lowest(&self) -> PathBuf {
        let path = self.root.join(&self.path);
        let existing = path.ancestors().find(|directory| directory.is_dir());
        existing.unwrap_or(&self.root).to_owned()
    }

    pub(super) fn set(&self, documents: &[Arc<Document>]) -> Result<PolicySet> {
        PolicySet::in_directory(documents, &self.path).ok_or_else(|| {
            Error::NoGovernance(format!(
                "no policy below `{}` applies to `{}`",
                self.root.display(),
                self.path
            ))
        })
    }
}

/// Anything with the name counts, so that a policy that cannot be read is not passed over.
fn governance_file(directory: &Path) -> Option<PathBuf> {
    GOVERNANCE_FILES
        .iter()
        .map(|name| directory.join(name))
        .find(|file| file.symlink_metadata().is_ok())
}

/// Without links and dots, as far as it exists: the path may be of a file yet to be created. A link
/// that code may have created does not choose another directory's policies.
fn resolve(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
    let mut resolved = PathBuf::new();
    for part in absolute.components() {
        if part == Component::ParentDir {
            resolved.pop();
            continue;
        }
        resolved.push(part);
        match follow(&resolved) {
            Ok(found) => resolved = found,
            // A link to nothing may lead somewhere later.
            Err(error) if error.kind() == ErrorKind::NotFound && !resolved.is_symlink() => {}
            Err(error) => return Err(unreadable(&absolute, &error)),
        }
    }
    Ok(resolved)
}
