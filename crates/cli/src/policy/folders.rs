//! Policies of folders: those from a root down to a path.

use std::path::{Component, Path, PathBuf};

use brig_policy::{Compat, GOVERNANCE_FILES, PolicySet};

use super::load;
use crate::args::FolderArgs;
use crate::failure::Failure;

/// The policies on the way down, and the path below the root that they are for.
pub struct Found {
    root: PathBuf,
    files: Vec<PathBuf>,
    path: String,
}

/// Nothing if no root is given. Whoever gives one wants a policy: finding none is an error.
pub fn find(args: &FolderArgs) -> Result<Option<Found>, Failure> {
    let Some(root) = &args.policy_root else {
        return Ok(None);
    };
    let here = PathBuf::from(".");
    let asked = args.policy_path.as_ref().unwrap_or(&here);
    let root = (root.canonicalize())
        .map_err(|error| Failure::file(&root.display().to_string(), &error))?;
    let path = resolve(asked)?;
    let Ok(below) = path.strip_prefix(&root) else {
        return Err(none(format!(
            "`{}` is not below `{}`",
            asked.display(),
            root.display()
        )));
    };
    let name = match below.to_str() {
        Some("") => ".".to_owned(),
        Some(name) => name.to_owned(),
        None => return Err(none(format!("`{}` is not UTF-8", asked.display()))),
    };
    let folder = if path.is_dir() {
        below
    } else {
        below.parent().unwrap_or(below)
    };
    let mut folders: Vec<&Path> = folder.ancestors().collect();
    folders.reverse();
    let files: Vec<PathBuf> = (folders.into_iter())
        .filter_map(|folder| in_folder(&root.join(folder)))
        .collect();
    if files.is_empty() {
        return Err(none(format!(
            "there is no {} from `{}` down to `{name}`",
            GOVERNANCE_FILES[0],
            root.display(),
        )));
    }
    Ok(Some(Found {
        root,
        files,
        path: name,
    }))
}

impl Found {
    pub fn load(&self, compat: Compat) -> Result<PolicySet, Failure> {
        let documents = load::documents(&self.files, compat)?;
        PolicySet::in_folder(&documents, &self.path).ok_or_else(|| {
            none(format!(
                "no policy below `{}` is for `{}`",
                self.root.display(),
                self.path
            ))
        })
    }
}

fn none(problem: String) -> Failure {
    Failure::new("policy.no-governance", problem)
        .with_hint("name the path with --policy-path, or give a policy with --policy")
}

/// Whatever is there under the name counts, so that what can't be read is not passed over.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    GOVERNANCE_FILES
        .iter()
        .map(|name| folder.join(name))
        .find(|file| file.symlink_metadata().is_ok())
}

/// Without links and dots, as far as it is there: the path may be of something yet to be made.
fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::file(&path.display().to_string(), &error);
    let path = std::path::absolute(path).map_err(failed)?;
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            resolved.pop();
            continue;
        }
        resolved.push(part);
        match resolved.canonicalize() {
            Ok(found) => resolved = found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::file(&path.display().to_string(), &error)),
        }
    }
    Ok(resolved)
}
