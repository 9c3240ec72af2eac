//! What a user may have changed of a root file system that is mostly somebody else's: everything in
//! folders that may be written, and elsewhere the files that may.

use std::collections::HashSet;
use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags, Stat, accessat};

/// The places that something else is mounted on are left out, unless they are taken in.
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

    /// Whether a path is one of them or lies below.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        ends.chain([path.len()])
            .any(|end| self.leaves_out(&path[..end]))
    }

    pub(crate) fn leaves_out(&self, path: &[u8]) -> bool {
        self.mounts.contains(path)
    }
}

pub fn is_own(found: &Stat) -> bool {
    found.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether names can be made and removed in a folder.
pub fn may_write(folder: impl AsFd) -> bool {
    accessat(
        folder,
        c".",
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::empty(),
    )
    .is_ok()
}

/// Whether the content of a file can be changed. Most can't, as their mode tells for nothing.
pub fn may_change(found: &Stat, folder: impl AsFd, name: &[u8]) -> bool {
    let may = || accessat(folder, name, Access::WRITE_OK, AtFlags::empty()).is_ok();
    is_own(found) || (found.st_mode & 0o022 != 0 && may())
}

/// Whether it could have been sent.
pub fn may_read(folder: impl AsFd, name: &[u8]) -> bool {
    accessat(folder, name, Access::READ_OK, AtFlags::empty()).is_ok()
}
