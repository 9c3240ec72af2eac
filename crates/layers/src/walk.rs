//! Looking at trees by descriptor, one name at a time, without following a link.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use brig_linux::directory::open_directory;
use rustix::fs::{
    AtFlags, CWD, FileType, Statx, StatxAttributes, StatxFlags, XattrFlags, fgetxattr,
    fremovexattr, fsetxattr, statx, unlinkat,
};
use rustix::io::Errno;

use super::MAX_DEPTH;
use super::copy::BLOCK;

const OPAQUE: &CStr = c"user.overlay.opaque";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    /// The mark of a name that was removed.
    Whiteout,
    Other,
}

/// Seconds and nanoseconds.
pub(super) type Time = (i64, u32);

#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub kind: Kind,
    /// Permissions with the set-id and sticky bits.
    pub mode: u32,
    pub size: u64,
    pub blocks: u64,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: (u32, u32),
    pub inode: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    /// Whether something else is mounted there.
    pub mounted: bool,
}

impl Meta {
    fn of(stat: &Statx) -> Self {
        let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            FileType::CharacterDevice if (stat.stx_rdev_major, stat.stx_rdev_minor) == (0, 0) => {
                Kind::Whiteout
            }
            _ => Kind::Other,
        };
        Self {
            kind,
            mode: u32::from(stat.stx_mode) & 0o7777,
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            links: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            accessed: time(stat.stx_atime),
            modified: time(stat.stx_mtime),
            changed: time(stat.stx_ctime),
            mounted: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        }
    }
}

/// Nothing if there is no such name.
pub(super) fn meta_at(folder: impl AsFd, name: &CStr) -> io::Result<Option<Meta>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(folder, name, flags, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some(Meta::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn meta(file: impl AsFd) -> rustix::io::Result<Meta> {
    Ok(Meta::of(&statx(
        file,
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::BASIC_STATS,
    )?))
}

/// The names in a directory, in order.
pub(super) fn names(folder: impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = brig_linux::directory::names(folder)?;
    names.sort();
    Ok(names)
}

pub(super) fn is_opaque(folder: impl AsFd) -> io::Result<bool> {
    let mut value = [0; 2];
    match fgetxattr(folder, OPAQUE, &mut value) {
        Ok(length) => Ok(value.get(..length) == Some(b"y")),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn set_opaque(folder: impl AsFd, opaque: bool) -> io::Result<()> {
    if opaque {
        return Ok(fsetxattr(folder, OPAQUE, b"y", XattrFlags::empty())?);
    }
    match fremovexattr(folder, OPAQUE) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes whatever has this name, with all below it.
pub(super) fn remove(folder: impl AsFd, name: &CStr) -> io::Result<()> {
    remove_below(folder, name, 0)
}

fn remove_below(folder: impl AsFd, name: &CStr, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match unlinkat(folder.as_fd(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    let inside = open_directory(folder.as_fd(), name)?;
    for entry in names(&inside)? {
        remove_below(&inside, &entry, depth + 1)?;
    }
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// What the files below a folder take: their blocks, without what the file system has put by for
/// them to grow.
pub fn usage(folder: &Path) -> io::Result<u64> {
    fn below(folder: &OwnedFd, counted: &mut HashSet<u64>, depth: usize) -> io::Result<u64> {
        let mut bytes = 0;
        for name in names(folder)? {
            match meta_at(folder, &name)? {
                Some(found) if found.kind == Kind::Folder && depth < MAX_DEPTH => {
                    bytes += below(&open_directory(folder, &name)?, counted, depth + 1)?;
                }
                Some(found) if found.links < 2 || counted.insert(found.inode) => {
                    let whole = found.size.saturating_add(BLOCK as u64 - 1);
                    bytes += (found.blocks * 512).min(whole / BLOCK as u64 * BLOCK as u64);
                }
                _ => {}
            }
        }
        Ok(bytes)
    }
    let folder = open_directory(CWD, folder)?;
    below(&folder, &mut HashSet::new(), 0)
}

pub(super) fn too_deep() -> io::Error {
    io::Error::other(format!("directories are nested more than {MAX_DEPTH} deep"))
}
