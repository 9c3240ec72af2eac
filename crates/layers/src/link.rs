//! A second tree of the same files: folders are made anew, everything else is a hard link.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use brig_linux::directory::open_directory;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, fchmod, fchown, futimens, linkat,
    mkdirat, mknodat,
};
use rustix::io::Errno;

use super::MAX_DEPTH;
use super::walk::{Kind, Meta, is_opaque, meta, meta_at, names, set_opaque, too_deep};

/// Fills the empty folder `to` with what is in `from`.
pub fn link_tree(from: &Path, to: &Path) -> io::Result<()> {
    let from = open_directory(CWD, from)?;
    let to = open_directory(CWD, to)?;
    fill(&from, &to, 0)
}

fn fill(from: &OwnedFd, to: &OwnedFd, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    for name in names(from)? {
        let found = meta_at(from, &name)?.ok_or(Errno::NOENT)?;
        match found.kind {
            Kind::Folder => {
                mkdirat(to, &*name, Mode::RWXU)?;
                fill(
                    &open_directory(from, &name)?,
                    &open_directory(to, &name)?,
                    depth + 1,
                )?;
            }
            Kind::Whiteout => whiteout(to, &name)?,
            Kind::File | Kind::Link => link(from, to, &name)?,
            Kind::Other => return Err(io::Error::other("not a file, directory or symbolic link")),
        }
    }
    dress(from, to, is_opaque(from)?)
}

pub(super) fn link(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
    Ok(linkat(from, name, to, name, AtFlags::empty())?)
}

fn whiteout(to: &OwnedFd, name: &CStr) -> io::Result<()> {
    Ok(mknodat(
        to,
        name,
        FileType::CharacterDevice,
        Mode::empty(),
        0,
    )?)
}

/// Gives a folder the owner, mode and time of another.
pub(super) fn dress(from: &OwnedFd, to: &OwnedFd, opaque: bool) -> io::Result<()> {
    let Meta {
        mode,
        uid,
        gid,
        modified,
        ..
    } = meta(from)?;
    let now = meta(to)?;
    if opaque {
        set_opaque(to, true)?;
    }
    if (now.uid, now.gid) != (uid, gid) {
        fchown(to, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    fchmod(to, Mode::from_raw_mode(mode))?;
    let modified = Timespec {
        tv_sec: modified.0,
        tv_nsec: modified.1.into(),
    };
    futimens(
        to,
        &Timestamps {
            last_access: modified,
            last_modification: modified,
        },
    )?;
    Ok(())
}
