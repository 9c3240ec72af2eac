//! The one writable file system of a sandbox.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_linux::directory::open_directory_handle;
use brig_wire::Setup;
use rustix::fs::{CWD, Mode};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::{Failure, Step};

/// Where the file system is attached while the root is assembled. Any directory that every host has.
const STAGING: &str = "/tmp";

/// The one writable file system.
pub(super) struct Disk {
    pub tree: OwnedFd,
}

impl Disk {
    pub(super) fn mount(setup: &Setup) -> Result<Self, Failure> {
        let context =
            rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("open tmpfs")?;
        for (key, value) in [
            ("size", setup.disk_bytes.to_string()),
            ("nr_inodes", setup.disk_inodes.to_string()),
            ("mode", "0755".into()),
            ("uid", setup.uid.to_string()),
            ("gid", setup.gid.to_string()),
        ] {
            rustix::mount::fsconfig_set_string(context.as_fd(), key, value)
                .step(format!("set tmpfs {key}"))?;
        }
        rustix::mount::fsconfig_create(context.as_fd()).step("create tmpfs")?;
        // The time of access of a file tells the owner whether it may have been mapped.
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        let tree =
            rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
                .step("mount tmpfs")?;
        attach_at(&tree, CWD, STAGING)?;
        Ok(Self { tree })
    }

    pub(super) fn make_directory(&self, name: &str, mode: u32) -> Result<(), Failure> {
        rustix::fs::mkdirat(&self.tree, name, Mode::from_raw_mode(mode))
            .step(format!("make {name}"))
    }

    pub(super) fn open_directory(&self, name: &str) -> Result<OwnedFd, Failure> {
        open_directory_handle(&self.tree, name).step(format!("open {name}"))
    }

    /// Makes a directory opaque in an overlay, if the kernel supports it: nothing of the lower
    /// directories shows.
    pub(super) fn hide_lower(&self, name: &str) -> Result<(), Failure> {
        let path = format!("{STAGING}/{name}");
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(path, "user.overlay.opaque", b"y", flags) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error).step(format!("hide what is below {name}")),
        }
    }

    /// A mount of one directory of the disk, not attached anywhere yet.
    pub(super) fn subtree(&self, name: &str) -> Result<OwnedFd, Failure> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(&self.tree, name, flags).step(format!("clone {name}"))
    }

    pub(super) fn bind_self(&self, name: &str) -> Result<OwnedFd, Failure> {
        self.make_directory(name, 0o755)?;
        let tree = self.subtree(name)?;
        attach_at(&tree, self.tree.as_fd(), name)?;
        Ok(tree)
    }

    /// The existing directory `name` as a writable layer over `lower` (lowest first).
    pub(super) fn overlay(&self, name: &str, lower: Vec<OwnedFd>) -> Result<OwnedFd, Failure> {
        for directory in [format!("{name}.work"), format!("{name}.merged")] {
            self.make_directory(&directory, 0o755)?;
        }
        let mut paths = Vec::new();
        for (index, tree) in lower.iter().enumerate() {
            let lower = format!("{name}.lower{index}");
            self.make_directory(&lower, 0o755)?;
            attach_at(tree, self.tree.as_fd(), &lower)?;
            paths.push(format!("{STAGING}/{lower}"));
        }
        paths.reverse();
        let context =
            rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open overlay")?;
        for (key, value) in [
            ("lowerdir", paths.join(":")),
            ("upperdir", format!("{STAGING}/{name}")),
            ("workdir", format!("{STAGING}/{name}.work")),
            // The only value that is allowed with `userxattr`.
            ("redirect_dir", "nofollow".into()),
            ("metacopy", "off".into()),
        ] {
            rustix::mount::fsconfig_set_string(context.as_fd(), key, value)
                .step(format!("set overlay {key}"))?;
        }
        rustix::mount::fsconfig_set_flag(context.as_fd(), "userxattr").step("set userxattr")?;
        rustix::mount::fsconfig_create(context.as_fd()).step("create overlay")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let tree =
            rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
                .step("mount overlay")?;
        attach_at(&tree, self.tree.as_fd(), &format!("{name}.merged"))?;
        Ok(tree)
    }
}

/// Attaches a mount to a name in a directory.
pub(super) fn attach_at(
    tree: &OwnedFd,
    directory: BorrowedFd<'_>,
    name: &str,
) -> Result<(), Failure> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", directory, name, flags).step(format!("mount {name}"))
}
