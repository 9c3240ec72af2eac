//! Opens files and directories that belong to the sending user, even if their mode forbids it, and
//! restores the mode.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use brig_linux::access::open_unseen;
use brig_linux::directory::open_directory;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

fn open_file(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    open_unseen(|more| {
        rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC | more, Mode::empty())
    })
}

/// Opens a directory that its mode closes to its owner. Returns the mode to be restored.
pub(crate) fn unlock(above: &OwnedFd, name: &CStr) -> rustix::io::Result<(OwnedFd, Option<Mode>)> {
    let found = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode).is_symlink() {
        return Err(Errno::LOOP);
    }
    let before = Mode::from_raw_mode(found.st_mode & 0o7777);
    rustix::fs::chmodat(above, name, before | Mode::RWXU, AtFlags::empty())?;
    match open_directory(above, name) {
        Ok(folder) => Ok((folder, Some(before))),
        Err(error) => {
            rustix::fs::chmodat(above, name, before, AtFlags::empty())?;
            Err(error)
        }
    }
}

/// Makes a directory searchable by its owner: one that can be listed may still have no execute bit.
/// Returns the mode to be restored.
pub(crate) fn make_searchable(folder: OwnedFd) -> rustix::io::Result<(OwnedFd, Option<Mode>)> {
    let before = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode & 0o7777);
    if before.contains(Mode::XUSR) {
        return Ok((folder, None));
    }
    // A directory of another user is left as it is.
    match rustix::fs::fchmod(&folder, before | Mode::RWXU) {
        Ok(()) => Ok((folder, Some(before))),
        Err(Errno::PERM) => Ok((folder, None)),
        Err(error) => Err(error),
    }
}

/// Opens a file for reading, if possible without changing its time of access, even if its mode forbids that to its owner.
pub(crate) fn open_readable(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    match open_file(folder, name) {
        Err(Errno::ACCESS) => {
            let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode).is_symlink() {
                return Err(Errno::LOOP);
            }
            let before = Mode::from_raw_mode(found.st_mode & 0o7777);
            rustix::fs::chmodat(folder, name, before | Mode::RWXU, AtFlags::empty())?;
            let opened = open_file(folder, name);
            rustix::fs::chmodat(folder, name, before, AtFlags::empty())?;
            opened
        }
        opened => opened,
    }
}
