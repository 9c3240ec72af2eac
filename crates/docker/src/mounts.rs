//! Folders of the host in a container.

use std::os::unix::fs::MetadataExt;

use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Plan, Result};

use crate::hardening::USER;

pub const WORKSPACE: &str = "/workspace";

/// For the engine: `source:target:mode`. Refuses what the container could not use.
pub fn binds(plan: &Plan, local: bool) -> Result<Vec<String>> {
    let mut binds = Vec::new();
    for mount in plan.workspace().into_iter().chain(plan.mounts()) {
        binds.push(bind(mount, local)?);
    }
    Ok(binds)
}

fn bind(mount: &CheckedMount, local: bool) -> Result<String> {
    let refuse = |problem: &str| Error::MountRefused {
        path: mount.source.display().to_string(),
        problem: problem.into(),
    };
    if !local {
        return Err(refuse(
            "the engine is on another machine, which has files of its own",
        ));
    }
    let found =
        std::fs::symlink_metadata(&mount.source).map_err(|error| refuse(&error.to_string()))?;
    if (found.dev(), found.ino()) != (mount.device, mount.inode) {
        return Err(refuse("it is no longer what was checked"));
    }
    if mount.writable && found.uid() != USER && found.mode() & 0o002 == 0 {
        return Err(refuse(
            "an engine can't show it under another owner, and only its owner may write there; let \
             others write (chmod o+w), or mount it read-only",
        ));
    }
    let (Some(source), Some(target)) = (mount.source.to_str(), mount.target.to_str()) else {
        return Err(refuse("an engine takes no path that is not UTF-8"));
    };
    if source.contains(':') || target.contains(':') {
        return Err(refuse("an engine takes no path with a colon"));
    }
    let mode = if mount.writable { "rw" } else { "ro" };
    // Nothing that is mounted below it later, on either side, reaches the other.
    Ok(format!("{source}:{target}:{mode},rprivate"))
}
