//! /proc for one PID namespace, with the kernel's files covered.

use std::os::fd::{AsFd, OwnedFd};

use brig_wire::Setup;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::{Failure, Step};

/// Mounts a fresh /proc over the one that is there and covers what `setup` names.
pub(crate) fn mount(setup: &Setup) -> Result<(), Failure> {
    attach(&fresh()?, "/proc")?;
    for path in &setup.hidden_proc {
        hide(path)?;
    }
    for path in &setup.read_only_proc {
        if let Some(tree) = clone_tree(path)? {
            brig_linux::mount::set_attributes(&tree, brig_linux::mount::READ_ONLY, true)
                .step(format!("make {path} read-only"))?;
            attach(&tree, path)?;
        }
    }
    Ok(())
}

/// Programs must not write there: with `oom_score_adj` they could make the OOM killer choose the guest
/// instead of them.
pub(crate) fn make_read_only() -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mounted = rustix::fs::open("/proc", flags, Mode::empty()).step("open /proc")?;
    let read_only = brig_linux::mount::READ_ONLY;
    brig_linux::mount::set_attributes(&mounted, read_only, false).step("make /proc read-only")
}

/// A procfs of this PID namespace, not attached anywhere yet.
pub(crate) fn fresh() -> Result<OwnedFd, Failure> {
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).step("open procfs")?;
    rustix::mount::fsconfig_create(context.as_fd()).step("create procfs")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .step("mount procfs")
}

fn hide(path: &str) -> Result<(), Failure> {
    let Ok(stat) = rustix::fs::lstat(path) else {
        return Ok(());
    };
    let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let cover = if directory { "/var/empty" } else { "/dev/null" };
    match clone_tree(cover)? {
        Some(tree) => attach(&tree, path),
        None => Err(std::io::Error::from(rustix::io::Errno::NOENT)).step(format!("cover {path}")),
    }
}

fn clone_tree(path: &str) -> Result<Option<OwnedFd>, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    match rustix::mount::open_tree(CWD, path, flags) {
        Ok(tree) => Ok(Some(tree)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error).step(format!("clone {path}")),
    }
}

fn attach(tree: &OwnedFd, target: &str) -> Result<(), Failure> {
    rustix::mount::move_mount(
        tree,
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .step(format!("mount {target}"))
}
