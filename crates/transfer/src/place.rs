//! What is done to a name in a folder.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::record::Time;
use crate::scope::{is_own, may_read};

pub fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

pub fn open_folder(folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// What is in a folder, also if nothing can be done with it.
pub fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut list = Dir::new(folder.try_clone()?)?;
    list.rewind();
    let mut names = Vec::new();
    for entry in list {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

pub fn could_be_sent(folder: &OwnedFd, name: &[u8]) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => true,
        FileType::RegularFile => is_own(&found) || may_read(folder, name),
        FileType::Directory => is_own(&found) || open_folder(folder, name).is_ok(),
        _ => false,
    })
}

pub fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::ROFS | Errno::NOTEMPTY)
    )
}

pub fn times((seconds, nanos): Time) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos.min(999_999_999).into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Removes whatever has this name, with all below it.
pub fn remove(folder: impl AsFd, name: &[u8], depth: usize) -> io::Result<()> {
    match rustix::fs::unlinkat(folder.as_fd(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) if depth <= MAX_DEPTH => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty())?;
    for below in names(&inside)? {
        remove(&inside, below.to_bytes(), depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}
