//! Makes a folder of the host equal to a folder that untrusted code may be writing to right now.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, futimens, linkat, mkdirat,
    mknodat, open, openat, readlinkat, symlinkat,
};
use rustix::io::Errno;

use super::copy::{copy, same};
use super::digest::open_file;
use super::mark::{mark, settled, times};
use super::part::Part;
use super::reading::Readable;
use super::walk::{
    Kind, Meta, is_opaque, meta, meta_at, names, open_folder, remove, set_opaque, too_deep,
};
use super::{MAX_DEPTH, MAX_ENTRIES};

/// What one call of [`mirror`] found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Everything that is there now.
    pub entries: u64,
    /// Files that were new or had changed.
    pub copied: u64,
    pub copied_bytes: u64,
    /// Names that were there before and are not any more.
    pub removed: u64,
    /// Sockets, pipes, devices and mounts: not kept.
    pub skipped: u64,
}

/// Makes `into` equal to the folder behind `upper`, copying only what changed since the last call.
/// With `overlay`, marks of removed names and opaque folders are kept; without, they mean nothing.
///
/// No link is followed, only regular files are opened, and no mount is entered. Set-id bits and
/// attributes are dropped, and the owner may always read and write. Files beside `into`, in
/// `into.part`, are used on the way. If `into` is called `name.next`, then `name` beside it is what
/// was saved before: what did not change since is linked from there, not copied.
///
/// A program that moves files about while they are saved could have the same bytes saved again and
/// again: more than `limit` bytes in one call is an error.
pub fn mirror(
    upper: BorrowedFd<'_>,
    into: &Path,
    overlay: bool,
    limit: u64,
) -> io::Result<MirrorStats> {
    let source = open_folder(upper, c".")?;
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = open(into, folder, Mode::empty())?;
    let earlier = match into.extension() {
        Some(extension) if extension == NEXT => {
            Some(open(into.with_extension(""), folder, Mode::empty())?)
        }
        _ => None,
    };
    let found = meta(&source)?;
    let mut mirror = Mirror {
        device: found.device,
        overlay,
        limit,
        chown: rustix::process::geteuid().is_root(),
        part: Part::beside(into),
        linked: HashMap::new(),
        stats: MirrorStats::default(),
    };
    let level = Level {
        source: &source,
        target: &target,
        earlier: earlier.as_ref(),
    };
    mirror.folder(level, &found, 0)?;
    Ok(mirror.stats)
}

/// The extension of a folder that is about to take the place of another.
pub(crate) const NEXT: &str = "next";

/// One folder: there, here, and as it was saved before.
#[derive(Clone, Copy)]
struct Level<'a> {
    source: &'a OwnedFd,
    target: &'a OwnedFd,
    earlier: Option<&'a OwnedFd>,
}

struct Mirror {
    device: (u32, u32),
    overlay: bool,
    limit: u64,
    chown: bool,
    part: Part,
    /// Files with several names: their inode there, and its copy here.
    linked: HashMap<u64, u64>,
    stats: MirrorStats,
}

impl Mirror {
    fn folder(&mut self, level: Level<'_>, found: &Meta, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut kept = HashSet::new();
        for name in names(level.source)? {
            if self.entry(level, &name, depth)? {
                kept.insert(name);
                self.stats.entries += 1;
            } else {
                self.stats.skipped += 1;
            }
            if self.stats.entries > MAX_ENTRIES {
                return Err(io::Error::other(format!(
                    "more than {MAX_ENTRIES} files and folders"
                )));
            }
        }
        for name in names(level.target)? {
            if !kept.contains(&name) {
                remove(level.target, &name)?;
                self.stats.removed += 1;
            }
        }
        self.dress_folder(level.source, level.target, found)
    }

    /// Says whether the name is kept.
    fn entry(&mut self, level: Level<'_>, name: &CStr, depth: usize) -> io::Result<bool> {
        let Level { source, target, .. } = level;
        // It may have gone, or become something else, since the folder was read.
        let Some(found) = meta_at(source, name)? else {
            return Ok(false);
        };
        if found.mounted || found.device != self.device {
            return Ok(false);
        }
        let before = meta_at(target, name)?;
        match found.kind {
            Kind::File => self.file(level, name, before.as_ref()),
            Kind::Link => self.link(source, target, name, &found, before.as_ref()),
            Kind::Whiteout if self.overlay => self.whiteout(target, name, before.as_ref()),
            Kind::Folder => {
                let Some(inside) = Readable::open(source, name, Kind::Folder)? else {
                    return Ok(false);
                };
                if before.is_none_or(|before| before.kind != Kind::Folder) {
                    remove(target, name)?;
                    mkdirat(target, name, Mode::RWXU)?;
                }
                let below = open_folder(target, name)?;
                let earlier = level
                    .earlier
                    .and_then(|earlier| open_folder(earlier, name).ok());
                let level = Level {
                    source: &inside.file,
                    target: &below,
                    earlier: earlier.as_ref(),
                };
                self.folder(level, &inside.found, depth + 1)?;
                Ok(true)
            }
            Kind::Whiteout | Kind::Other => Ok(false),
        }
    }

    fn file(&mut self, level: Level<'_>, name: &CStr, before: Option<&Meta>) -> io::Result<bool> {
        let target = level.target;
        let Some(open) = Readable::open(level.source, name, Kind::File)? else {
            return Ok(false);
        };
        let found = open.found;
        if found.links > 1 && self.same_as_another(target, name, &found, before)? {
            return Ok(true);
        }
        let file = File::from(open.file.try_clone()?);
        if !before.is_some_and(|before| self.up_to_date(before, &found))
            && !self.same_as_before(level, name, &file, &found, before)?
        {
            self.copy(&file, target, name, &found, before)?;
        }
        if found.links > 1 {
            self.remember(target, name, &found)?;
        }
        Ok(true)
    }

    fn up_to_date(&self, copy: &Meta, found: &Meta) -> bool {
        self.alike(copy, found) && copy.accessed == mark(found)
    }

    fn alike(&self, copy: &Meta, found: &Meta) -> bool {
        copy.kind == Kind::File
            && copy.size == found.size
            && copy.modified == found.modified
            && copy.mode == file_mode(found.mode)
            && (!self.chown || (copy.uid, copy.gid) == (found.uid, found.gid))
    }

    /// If what was saved before is still up to date, links it. A file that was copied into a new
    /// instance has no mark yet: what it holds decides.
    fn same_as_before(
        &mut self,
        level: Level<'_>,
        name: &CStr,
        file: &File,
        found: &Meta,
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let Some(earlier) = level.earlier else {
            return Ok(false);
        };
        let Some(copy) = meta_at(earlier, name)?.filter(|copy| self.alike(copy, found)) else {
            return Ok(false);
        };
        if !self.up_to_date(&copy, found) {
            let copy = open_file(earlier, name)?;
            if !same(file, &copy, found.size)? {
                return Ok(false);
            }
            futimens(&copy, &times(settled(found), found.modified))?;
        }
        if before.is_some_and(|before| before.inode == copy.inode) {
            return Ok(true);
        }
        let part = self.part.open()?;
        match linkat(earlier, name, part, c"file", AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::MLINK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.part.place(c"file", level.target, name, before)?;
        Ok(true)
    }

    fn copy(
        &mut self,
        file: &File,
        target: &OwnedFd,
        name: &CStr,
        found: &Meta,
        before: Option<&Meta>,
    ) -> io::Result<()> {
        let part = self.part.open()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = File::from(openat(part, c"file", flags, Mode::RUSR | Mode::WUSR)?);
        self.stats.copied_bytes += copy(file, found.size, &new)?;
        if self.stats.copied_bytes > self.limit {
            return Err(io::Error::other(
                "the workspace changes while it is saved, and would take more than its limit",
            ));
        }
        self.stats.copied += 1;
        self.own(&new, found)?;
        fchmod(&new, Mode::from_raw_mode(file_mode(found.mode)))?;
        futimens(&new, &times(settled(found), found.modified))?;
        self.part.place(c"file", target, name, before)
    }

    /// If this inode was copied under another name, makes this name a link to that copy.
    fn same_as_another(
        &mut self,
        target: &OwnedFd,
        name: &CStr,
        found: &Meta,
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let Some(copy) = self.linked.get(&found.inode) else {
            return Ok(false);
        };
        if before.is_some_and(|before| before.inode == *copy) {
            return Ok(true);
        }
        let part = self.part.open()?;
        match linkat(part, &*kept_name(found), part, c"file", AtFlags::empty()) {
            Ok(()) => {}
            // The file system allows no more names for it: a copy will do.
            Err(Errno::MLINK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.part.place(c"file", target, name, before)?;
        Ok(true)
    }

    fn remember(&mut self, target: &OwnedFd, name: &CStr, found: &Meta) -> io::Result<()> {
        if self.linked.contains_key(&found.inode) {
            return Ok(());
        }
        let part = self.part.open()?;
        match linkat(target, name, part, &*kept_name(found), AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::MLINK) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if let Some(copy) = meta_at(target, name)? {
            self.linked.insert(found.inode, copy.inode);
        }
        Ok(())
    }

    fn link(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        name: &CStr,
        found: &Meta,
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let to = match readlinkat(source, name, Vec::new()) {
            Ok(to) => to,
            Err(Errno::INVAL | Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let same = before.is_some_and(|before| before.kind == Kind::Link)
            && readlinkat(target, name, Vec::new())? == to;
        if !same {
            let part = self.part.open()?;
            symlinkat(&to, part, c"file")?;
            if self.chown {
                let (uid, gid) = owner(found);
                chownat(part, c"file", uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            self.part.place(c"file", target, name, before)?;
        }
        Ok(true)
    }

    fn whiteout(
        &mut self,
        target: &OwnedFd,
        name: &CStr,
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        if before.is_none_or(|before| before.kind != Kind::Whiteout) {
            let part = self.part.open()?;
            mknodat(part, c"file", FileType::CharacterDevice, Mode::empty(), 0)?;
            self.part.place(c"file", target, name, before)?;
        }
        Ok(true)
    }

    fn dress_folder(&self, source: &OwnedFd, target: &OwnedFd, found: &Meta) -> io::Result<()> {
        let now = meta(target)?;
        let opaque = self.overlay && is_opaque(source)?;
        if is_opaque(target)? != opaque {
            set_opaque(target, opaque)?;
        }
        if (now.uid, now.gid) != (found.uid, found.gid) {
            self.own(target, found)?;
        }
        let mode = found.mode & 0o777 | 0o700;
        if now.mode != mode {
            fchmod(target, Mode::from_raw_mode(mode))?;
        }
        if now.modified != found.modified {
            futimens(target, &times(None, found.modified))?;
        }
        Ok(())
    }

    fn own(&self, file: impl AsFd, found: &Meta) -> io::Result<()> {
        if self.chown {
            let (uid, gid) = owner(found);
            fchown(file, uid, gid)?;
        }
        Ok(())
    }
}

fn owner(found: &Meta) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(found.uid)),
        Some(Gid::from_raw(found.gid)),
    )
}

fn file_mode(mode: u32) -> u32 {
    mode & 0o777 | 0o600
}

fn kept_name(found: &Meta) -> CString {
    CString::new(format!("inode-{}", found.inode)).unwrap_or_default()
}
