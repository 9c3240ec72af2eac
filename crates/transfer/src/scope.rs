//! What a user may have changed in a root file system that mostly belongs to others: everything in writable
//! directories, and writable files elsewhere.

use std::collections::HashSet;
use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags, Stat, accessat};

/// Everything but these mount points.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    mounts: HashSet<Vec<u8>>,
}

impl Scope {
    /// Paths are relative to the root.
    pub fn around(mounts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mounts = mounts.into_iter().collect();
        Self { mounts }
    }

    /// Whether a path is one of the mount points or below one.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        ends.chain([path.len()])
            .any(|end| self.leaves_out(&path[..end]))
    }

    pub(crate) fn leaves_out(&self, path: &[u8]) -> bool {
        self.mounts.contains(path)
    }
}

pub(crate) fn is_own(found: &Stat) -> bool {
    found.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether entries can be created and removed in a directory.
pub(crate) fn may_write(folder: impl AsFd) -> bool {
    accessat(
        folder,
        c".",
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::empty(),
    )
    .is_ok()
}

/// Whether the content of a file can be changed. The mode rules most files out without a system call.
pub(crate) fn may_change(found: &Stat, folder: impl AsFd, name: &[u8]) -> bool {
    let may = || accessat(folder, name, Access::WRITE_OK, AtFlags::empty()).is_ok();
    is_own(found) || (found.st_mode & 0o022 != 0 && may())
}

/// Whether a file could have been sent.
pub(crate) fn may_read(folder: impl AsFd, name: &[u8]) -> bool {
    accessat(folder, name, Access::READ_OK, AtFlags::empty()).is_ok()
}
