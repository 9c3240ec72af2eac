//! Mount attributes, which `rustix` has no call for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

pub const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
pub const NO_EXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Sets attributes on a mount and everything below it.
pub fn set_attributes(mount: impl AsFd, attributes: u64, recursive: bool) -> io::Result<()> {
    set(
        mount.as_fd().as_raw_fd(),
        libc::mount_attr {
            attr_set: attributes,
            attr_clr: 0,
            propagation: 0,
            userns_fd: 0,
        },
        recursive,
    )
}

/// Sets attributes on a mount and everything below it, and makes all of it private: nothing that is
/// mounted, moved or unmounted where the mount was cloned from is seen here, or the other way round.
///
/// A clone of a shared mount is its peer, and a clone of a slave is another slave, also if the
/// mounts of the whole namespace are made private later: each clone has to be told.
pub fn restrict(tree: impl AsFd, attributes: u64) -> io::Result<()> {
    set(
        tree.as_fd().as_raw_fd(),
        libc::mount_attr {
            attr_set: attributes,
            attr_clr: 0,
            propagation: libc::MS_PRIVATE,
            userns_fd: 0,
        },
        true,
    )
}

/// Shows the files of a detached mount under the ids that `user_namespace` maps them to.
pub fn map_ids(mount: impl AsFd, user_namespace: impl AsFd) -> io::Result<()> {
    set(
        mount.as_fd().as_raw_fd(),
        libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: user_namespace.as_fd().as_raw_fd() as u64,
        },
        true,
    )
}

fn set(mount: i32, mut attributes: libc::mount_attr, recursive: bool) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a constant string and the structure is passed with its size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            flags,
            &raw mut attributes,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
