//! Mounts that root makes for the guest: opened with root's rights, shown under the id that the
//! sandbox runs as.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use brig_linux::clone::{Gated, USER_NAMESPACE, spawn_gated};
use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;

use crate::identity::Identity;

/// Clones what the plan has checked, and nothing that has taken its place since.
pub fn open(mount: &CheckedMount, identity: &Identity) -> Result<OwnedFd> {
    let refuse = |error: io::Error| Error::MountRefused {
        path: mount.source.display().to_string(),
        problem: error.to_string(),
    };
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(CWD, &mount.source, flags, Mode::empty(), resolve)
        .map_err(|error| refuse(error.into()))?;
    let stat = rustix::fs::fstat(&found).map_err(|error| refuse(error.into()))?;
    if (stat.st_dev, stat.st_ino) != (mount.device, mount.inode) {
        return Err(refuse(io::Error::other("it is no longer what was checked")));
    }
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(&found, "", clone).map_err(|error| refuse(error.into()))?;
    let map = mapping(stat.st_uid, stat.st_gid, identity).map_err(refuse)?;
    match brig_linux::mount::map_ids(&tree, &map) {
        // Not every file system can: then the files keep their owners, and their permissions
        // decide.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {}
        mapped => mapped.map_err(refuse)?,
    }
    Ok(tree)
}

/// A user namespace that stands for "the owner of this folder is the sandbox's user".
fn mapping(uid: u32, gid: u32, identity: &Identity) -> io::Result<OwnedFd> {
    let null = std::fs::File::open("/dev/null")?;
    // It waits at its gate and ends when it is dropped: no program is ever run.
    let holder = spawn_gated(&Gated {
        namespaces: USER_NAMESPACE,
        program: null.as_fd(),
        argv: &[],
        descriptors: &[],
        null: null.as_fd(),
        cgroup: None,
        tasks: &[],
    })?;
    let folder = format!("/proc/{}", holder.pid());
    std::fs::write(
        format!("{folder}/uid_map"),
        format!("{uid} {} 1", identity.uid),
    )?;
    std::fs::write(
        format!("{folder}/gid_map"),
        format!("{gid} {} 1", identity.gid),
    )?;
    std::fs::File::open(format!("{folder}/ns/user")).map(OwnedFd::from)
}
