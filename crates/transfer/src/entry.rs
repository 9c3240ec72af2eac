//! Operations on entries of a directory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use brig_linux::directory::{names, open_directory};
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::record::Time;
use crate::scope::{is_own, may_read};

pub(crate) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// Whether a sender would have sent it.
pub(crate) fn could_be_sent(folder: &OwnedFd, name: &[u8]) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => true,
        FileType::RegularFile => is_own(&found) || may_read(folder, name),
        FileType::Directory => is_own(&found) || open_directory(folder, name).is_ok(),
        _ => false,
    })
}

/// Whether the kernel refused an operation for lack of permission, and not for a fault.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::ROFS | Errno::NOTEMPTY)
    )
}

pub(crate) fn times((seconds, nanos): Time) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos.min(999_999_999).into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Removes an entry, with everything below it.
pub(crate) fn remove(folder: impl AsFd, name: &[u8], depth: usize) -> io::Result<()> {
    match rustix::fs::unlinkat(folder.as_fd(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) if depth <= MAX_DEPTH => {}
        Err(error) => return Err(error.into()),
    }
    let inside = open_directory(folder.as_fd(), name)?;
    for below in names(&inside)? {
        remove(&inside, below.to_bytes(), depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}
