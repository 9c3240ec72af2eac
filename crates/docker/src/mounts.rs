//! Folders of the host in a container.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Plan, Result};

use crate::hardening::USER;
use crate::runtime::{Kind, Runtime};

pub const WORKSPACE: &str = "/workspace";

/// For the engine: `source:target:mode`. Refuses what the container could not use.
pub fn binds(plan: &Plan, local: bool) -> Result<Vec<String>> {
    let mut binds = Vec::new();
    for mount in plan.workspace().into_iter().chain(plan.mounts()) {
        binds.push(bind(mount, local)?);
    }
    Ok(binds)
}

/// What the guest is to find, so that nothing has taken its place. Other kernels give files other
/// numbers.
pub fn expected(runtime: &Runtime, plan: &Plan) -> Vec<(String, (u64, u64))> {
    if runtime.kind != Kind::Plain {
        return Vec::new();
    }
    let mounts = plan.workspace().into_iter().chain(plan.mounts());
    let expected = |mount: &CheckedMount| {
        let target = mount.target.to_string_lossy().into_owned();
        (target, (mount.device, mount.inode))
    };
    mounts.map(expected).collect()
}

/// For guests that can't tell: it is still what was checked, now that it is mounted.
pub fn look_again(plan: &Plan) -> Result<()> {
    let mut mounts = plan.workspace().into_iter().chain(plan.mounts());
    mounts.try_for_each(|mount| look(mount).map(drop))
}

fn look(mount: &CheckedMount) -> Result<Metadata> {
    let refuse = |problem: String| Error::MountRefused {
        path: mount.source.display().to_string(),
        problem,
    };
    let found =
        std::fs::symlink_metadata(&mount.source).map_err(|error| refuse(error.to_string()))?;
    if (found.dev(), found.ino()) == (mount.device, mount.inode) {
        Ok(found)
    } else {
        Err(refuse("it is no longer what was checked".into()))
    }
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
    let found = look(mount)?;
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
