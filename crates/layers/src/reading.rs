//! Opening what untrusted code may swap at any moment.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use brig_linux::access::open_unseen;
use rustix::fs::{CWD, Mode, OFlags, chmod, fchmod, openat};
use rustix::io::Errno;

use super::walk::{Kind, Meta, meta};

/// A regular file or a folder that is open for reading, also if its mode forbids that.
pub(super) struct Readable {
    pub file: OwnedFd,
    /// With the mode it has by itself.
    pub found: Meta,
    lifted: bool,
}

impl Drop for Readable {
    fn drop(&mut self) {
        if self.lifted {
            let _ = fchmod(&self.file, Mode::from_raw_mode(self.found.mode));
        }
    }
}

impl Readable {
    /// Nothing if the name is not of that kind any more.
    pub(crate) fn open(folder: &OwnedFd, name: &CStr, kind: Kind) -> io::Result<Option<Self>> {
        let opened = match open(folder, name, kind) {
            Ok(opened) if !opened.closed_to_walk() => Ok(opened),
            Ok(_) | Err(Errno::ACCESS) => lift(folder, name, kind),
            Err(error) => Err(error),
        };
        match opened {
            Ok(opened) if opened.found.kind == kind => Ok(Some(opened)),
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A folder may be readable and yet not let anyone through.
    fn closed_to_walk(&self) -> bool {
        self.found.kind == Kind::Folder
            && self.found.mode & 0o100 == 0
            && !rustix::process::geteuid().is_root()
    }
}

fn flags(kind: Kind) -> OFlags {
    let what = if kind == Kind::Folder {
        OFlags::DIRECTORY
    } else {
        OFlags::NONBLOCK
    };
    OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | what
}

fn open(folder: &OwnedFd, name: &CStr, kind: Kind) -> rustix::io::Result<Readable> {
    let file = open_unseen(|more| {
        openat(
            folder,
            name,
            flags(kind) | OFlags::NOFOLLOW | more,
            Mode::empty(),
        )
    })?;
    Ok(Readable {
        found: meta(&file)?,
        file,
        lifted: false,
    })
}

/// The file is ours, only its mode forbids it: the mode is lifted while it is read.
fn lift(folder: &OwnedFd, name: &CStr, kind: Kind) -> rustix::io::Result<Readable> {
    let pin = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pinned = openat(folder, name, pin, Mode::empty())?;
    let found = meta(&pinned)?;
    if found.kind != kind {
        return Err(Errno::NOENT);
    }
    let path = format!("/proc/self/fd/{}", pinned.as_raw_fd());
    chmod(&path, Mode::from_raw_mode(found.mode | 0o500))?;
    let file = open_unseen(|more| openat(CWD, &path, flags(kind) | more, Mode::empty()))?;
    Ok(Readable {
        file,
        found,
        lifted: true,
    })
}
