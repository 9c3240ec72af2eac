//! Where Brig keeps its own files, by the XDG base directory specification.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use etcetera::base_strategy::{BaseStrategy, Xdg};

/// `$XDG_CONFIG_HOME/brig`, usually `~/.config/brig`. `None` without a home directory.
pub fn config_dir() -> Option<PathBuf> {
    Some(Xdg::new().ok()?.config_dir().join("brig"))
}

/// `$XDG_STATE_HOME/brig`, usually `~/.local/state/brig`: sessions and the audit log. `None`
/// without a home directory.
pub fn state_dir() -> Option<PathBuf> {
    Some(Xdg::new().ok()?.state_dir()?.join("brig"))
}

/// A directory that mounts may neither show nor contain, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Private {
    pub path: PathBuf,
    pub why: &'static str,
}

impl Private {
    pub(crate) fn new(path: impl Into<PathBuf>, why: &'static str) -> Self {
        let path = path.into();
        Self { path, why }
    }

    /// The directories of the user who runs Brig. Code that could write to them could allow itself
    /// hosts, turn the sandbox off for the next run, or change the evidence.
    pub(crate) fn of_user() -> Vec<Self> {
        let config = config_dir().map(|path| Self::new(path, CONFIG));
        let state = state_dir().map(|path| Self::new(path, STATE));
        state.into_iter().chain(config).collect()
    }

    /// The same directory by its path without links. A directory that does not exist yet counts
    /// too: code could create it.
    pub(crate) fn resolved(&self) -> Self {
        Self::new(resolve(&self.path), self.why)
    }

    /// Whether a path is in it, or contains it. Both are without links.
    pub(crate) fn overlaps(&self, path: &Path) -> bool {
        path.starts_with(&self.path) || self.path.starts_with(path)
    }
}

pub(crate) const CONFIG: &str = "it contains the configuration of Brig";
pub(crate) const STATE: &str = "Brig keeps its own state there";

/// The path without links, as far as it exists.
fn resolve(path: &Path) -> PathBuf {
    let mut missing: Vec<OsString> = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(mut found) = ancestor.canonicalize() {
            found.extend(missing.iter().rev());
            return found;
        }
        missing.extend(ancestor.file_name().map(ToOwned::to_owned));
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_missing_is_private_too() {
        let outer = tempfile::tempdir().expect("directory");
        let outer = outer.path().canonicalize().expect("path");
        std::fs::create_dir(outer.join("home")).expect("directory");
        std::os::unix::fs::symlink("home", outer.join("link")).expect("link");
        let private = Private::new(outer.join("link/.config/brig"), CONFIG).resolved();
        for path in ["home", "home/.config", "home/.config/brig/x"] {
            assert!(private.overlaps(&outer.join(path)), "{path}");
        }
        for path in ["home/.config/other", "home/project", "other"] {
            assert!(!private.overlaps(&outer.join(path)), "{path}");
        }
    }

    #[test]
    fn own_directories_end_with_our_name() {
        for path in [config_dir(), state_dir()].into_iter().flatten() {
            assert!(path.is_absolute() && path.ends_with("brig"), "{path:?}");
        }
    }
}
