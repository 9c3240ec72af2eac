//! Opening what the user who sends it owns, whatever its mode says, and leaving it as it was.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

pub fn open_folder(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

fn open_file(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a folder to its owner; the answer has the mode that it is to get back.
pub fn unlock(above: &OwnedFd, name: &CStr) -> rustix::io::Result<(OwnedFd, Option<Mode>)> {
    let found = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode).is_symlink() {
        return Err(Errno::LOOP);
    }
    let before = Mode::from_raw_mode(found.st_mode & 0o7777);
    rustix::fs::chmodat(above, name, before | Mode::RWXU, AtFlags::empty())?;
    match open_folder(above, name) {
        Ok(folder) => Ok((folder, Some(before))),
        Err(error) => {
            rustix::fs::chmodat(above, name, before, AtFlags::empty())?;
            Err(error)
        }
    }
}

/// One that can be listed may still keep its owner from what is in it.
pub fn usable(folder: OwnedFd) -> rustix::io::Result<(OwnedFd, Option<Mode>)> {
    let before = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode & 0o7777);
    if before.contains(Mode::XUSR) {
        return Ok((folder, None));
    }
    // Whose it is not, needs no help or gets none.
    match rustix::fs::fchmod(&folder, before | Mode::RWXU) {
        Ok(()) => Ok((folder, Some(before))),
        Err(Errno::PERM) => Ok((folder, None)),
        Err(error) => Err(error),
    }
}

/// Whoever owns a file may read it, also if its mode says otherwise.
pub fn readable(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
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
