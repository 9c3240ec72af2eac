//! Where things may be mounted inside the sandbox.

use std::path::{Component, Path, PathBuf};

use super::{WORKSPACE, refuse, rules};
use crate::Result;

/// The target without superfluous slashes and dots.
pub(super) fn check(target: &Path, taken: &[PathBuf]) -> Result<PathBuf> {
    if !target.is_absolute() {
        return refuse(target, "the path in the sandbox must be absolute");
    }
    if target.as_os_str().as_encoded_bytes().contains(&0) {
        return refuse(target, "a NUL byte is not allowed");
    }
    if target.components().any(|part| part == Component::ParentDir) {
        return refuse(target, "`..` is not allowed in the path in the sandbox");
    }
    let target: PathBuf = target.components().collect();
    if target == Path::new("/") {
        return refuse(&target, "`/` cannot be a mount point; see --rootfs");
    }
    if target == Path::new(WORKSPACE) {
        return refuse(&target, "it is the workspace; see --workspace");
    }
    for tree in rules::TARGET_TREES {
        if target.starts_with(tree) || Path::new(tree).starts_with(&target) {
            return refuse(
                &target,
                format!("`{tree}` in the sandbox is reserved for Brig"),
            );
        }
    }
    // A place inside another mount would have to be made in a host directory.
    for other in taken {
        if target.starts_with(other) || other.starts_with(&target) {
            let problem = format!("it overlaps with the mount at `{}`", other.display());
            return refuse(&target, problem);
        }
    }
    Ok(target)
}
