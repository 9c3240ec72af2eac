//! Makes a host directory equal to a directory that untrusted code may be writing to right now.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use brig_linux::directory::open_directory;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, futimens, linkat,
    mkdirat, mknodat, openat, readlinkat, symlinkat,
};
use rustix::io::Errno;

use super::accesses::Accesses;
use super::copy::{Comparison, copy};
use super::digest::open_file;
use super::mark::{mark, settled, times};
use super::part::Part;
use super::reading::Readable;
use super::walk::{
    Kind, Meta, Time, is_opaque, meta, meta_at, names, remove, set_opaque, too_deep,
};
use super::{MAX_DEPTH, MAX_ENTRIES};

/// How a file that looks as it did when it was saved is known to hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// By the time of its last change. Only where nobody can have written to it through a mapping:
    /// such a write need not change any time.
    Time,
    /// By that and by the time of its last access, where a mapping changes it and no program had mapped a file
    /// when the folder was saved the last time. Programs ran from this time on, by [`brig_linux::access::now`].
    Access(Time),
    /// By what it holds.
    Content,
}

/// What one call of [`mirror`] found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Everything that is there now.
    pub entries: u64,
    /// Files that were opened, because their marks did not tell that they are as they were.
    pub opened: u64,
    /// Files that were new or had changed.
    pub copied: u64,
    pub copied_bytes: u64,
    /// Read to find out what changed.
    pub compared_bytes: u64,
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
/// A program that moves files about while they are saved could have the same bytes saved, or
/// compared, again and again: more than `limit` bytes in one call is an error.
///
/// `owner`: the uid and gid that everything saved gets, whoever it belongs to in `upper`; only root
/// can give files away. Without it, they belong to the caller.
pub fn mirror(
    upper: BorrowedFd<'_>,
    into: &Path,
    overlay: bool,
    limit: u64,
    unchanged: Unchanged,
    owner: Option<(u32, u32)>,
) -> io::Result<MirrorStats> {
    let mut accesses = Accesses::default();
    mirror_seen(upper, into, overlay, limit, unchanged, owner, &mut accesses)
}

/// The same, with what the last call found out about accesses.
pub fn mirror_seen(
    upper: BorrowedFd<'_>,
    into: &Path,
    overlay: bool,
    limit: u64,
    unchanged: Unchanged,
    owner: Option<(u32, u32)>,
    accesses: &mut Accesses,
) -> io::Result<MirrorStats> {
    let source = open_directory(upper, c".")?;
    let target = open_directory(CWD, into)?;
    let earlier = match into.extension() {
        Some(extension) if extension == NEXT => Some(open_directory(CWD, into.with_extension(""))?),
        _ => None,
    };
    if let Some(earlier) = &earlier
        && accesses.copied > MUCH
    {
        remove_replaced(&target, earlier, 0)?;
    }
    let found = meta(&source)?;
    let mut mirror = Mirror {
        device: found.device,
        overlay,
        limit,
        unchanged,
        accesses,
        follows: earlier.is_some(),
        comparison: Comparison::default(),
        owner,
        part: Part::beside(into),
        linked: HashMap::new(),
        stats: MirrorStats::default(),
    };
    let level = Level {
        source: &source,
        target: &target,
        earlier: earlier.as_ref(),
    };
    mirror.accesses.begin();
    mirror.folder(level, &found, 0)?;
    mirror.accesses.complete();
    mirror.accesses.copied = mirror.stats.copied_bytes;
    mirror.stats.compared_bytes = mirror.comparison.bytes;
    Ok(mirror.stats)
}

/// After a call that copied more than this, what it replaced is removed before the next one.
const MUCH: u64 = 4 << 20;

/// Removes the files of a folder that was in use before another that are not those of the other. They are of no use any
/// more, and would lie there beside new ones until all of those are saved.
fn remove_replaced(old: &OwnedFd, new: &OwnedFd, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    for name in names(old)? {
        let Some(found) = meta_at(old, &name)? else {
            continue;
        };
        let other = meta_at(new, &name)?;
        match (found.kind, other) {
            (Kind::Folder, Some(other)) if other.kind == Kind::Folder => {
                let (old, new) = (open_directory(old, &*name)?, open_directory(new, &*name)?);
                remove_replaced(&old, &new, depth + 1)?;
            }
            (Kind::File, Some(other))
                if (found.device, found.inode) == (other.device, other.inode) => {}
            (Kind::Folder | Kind::File, _) => remove(old, &name)?,
            _ => {}
        }
    }
    Ok(())
}

/// What the files hold, and what their copies hold in place of holes, for two copies of each.
const COMPARED: u64 = 4;

/// The extension of a folder that is about to take the place of another.
pub const NEXT: &str = "next";

/// One folder: there, here, and as it was saved before.
#[derive(Clone, Copy)]
struct Level<'a> {
    source: &'a OwnedFd,
    target: &'a OwnedFd,
    earlier: Option<&'a OwnedFd>,
}

struct Mirror<'a> {
    device: (u32, u32),
    overlay: bool,
    limit: u64,
    unchanged: Unchanged,
    accesses: &'a mut Accesses,
    /// Whether something was saved before, beside the target.
    follows: bool,
    comparison: Comparison,
    owner: Option<(u32, u32)>,
    part: Part,
    /// Files with several names: their inode there, and its copy here.
    linked: HashMap<u64, u64>,
    stats: MirrorStats,
}

impl Mirror<'_> {
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
                    "more than {MAX_ENTRIES} files and directories"
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
            Kind::File if self.is_saved(level, name, &found, before.as_ref())? => {
                self.accesses.found(&found);
                Ok(true)
            }
            Kind::File => self.file(level, name, before.as_ref()),
            Kind::Link => self.link(source, target, name, before.as_ref()),
            Kind::Whiteout if self.overlay => self.whiteout(target, name, before.as_ref()),
            Kind::Folder => {
                let Some(inside) = Readable::open(source, name, Kind::Folder)? else {
                    return Ok(false);
                };
                if before.is_none_or(|before| before.kind != Kind::Folder) {
                    remove(target, name)?;
                    mkdirat(target, name, Mode::RWXU)?;
                }
                let below = open_directory(target, name)?;
                let earlier = level
                    .earlier
                    .and_then(|earlier| open_directory(earlier, name).ok());
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

    /// Whether the marks alone tell that nothing is to be done for a file. It is not opened for that: most files
    /// of a large workspace are as they were.
    fn is_saved(
        &self,
        level: Level<'_>,
        name: &CStr,
        found: &Meta,
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let Some(before) = before else {
            return Ok(false);
        };
        if !self.tells_by_time(found) || found.links > 1 {
            return Ok(false);
        }
        let is_marked = |copy: &Meta| self.alike(copy, found) && copy.accessed == mark(found);
        let Some(earlier) = level.earlier else {
            return Ok(!self.follows && is_marked(before));
        };
        // What is here is older than what was saved last, unless it is the same file.
        let saved = meta_at(earlier, name)?;
        Ok(saved.is_some_and(|saved| {
            (saved.device, saved.inode) == (before.device, before.inode) && is_marked(&saved)
        }))
    }

    /// Whether the time of its last change tells that a file is as it was.
    fn tells_by_time(&self, found: &Meta) -> bool {
        match self.unchanged {
            Unchanged::Time => true,
            Unchanged::Access(since) => self.accesses.unaccessed(found, since),
            Unchanged::Content => false,
        }
    }

    fn file(&mut self, level: Level<'_>, name: &CStr, before: Option<&Meta>) -> io::Result<bool> {
        let target = level.target;
        let Some(open) = Readable::open(level.source, name, Kind::File)? else {
            return Ok(false);
        };
        self.stats.opened += 1;
        let found = open.found;
        self.accesses.found(&found);
        if found.links > 1 && self.same_as_another(target, name, &found, before)? {
            return Ok(true);
        }
        let file = File::from(open.file.try_clone()?);
        if !self.same_as_earlier(level, name, (&file, &found), before)?
            && !self.is_here(level, name, (&file, &found), before)?
        {
            self.copy(&file, target, name, &found, before)?;
        }
        if found.links > 1 {
            self.remember(target, name, &found)?;
        }
        Ok(true)
    }

    /// Whether a copy is one of the file as it is now.
    fn is_copy(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        copy: Option<&Meta>,
        (file, found): (&File, &Meta),
        by_time: bool,
    ) -> io::Result<bool> {
        let Some(copy) = copy.filter(|copy| self.alike(copy, found)) else {
            return Ok(false);
        };
        if by_time && copy.accessed == mark(found) {
            return Ok(true);
        }
        // The source may be made of links to what was saved.
        if (copy.device, copy.inode) == (found.device, found.inode) {
            return Ok(true);
        }
        // A file that was copied into a new instance has no mark yet: what it holds decides.
        let copy = open_file(folder, name)?;
        let same = self.comparison.same(file, &copy, found.size)?;
        if self.comparison.bytes > self.limit.saturating_mul(COMPARED) {
            return Err(changes_meanwhile());
        }
        if same {
            futimens(&copy, &times(settled(found), found.modified))?;
        }
        Ok(same)
    }

    fn alike(&self, copy: &Meta, found: &Meta) -> bool {
        copy.kind == Kind::File
            && copy.size == found.size
            && copy.modified == found.modified
            && copy.mode == file_mode(found.mode)
            && self.is_owned(copy)
    }

    /// If what was saved last is still up to date, links it.
    fn same_as_earlier(
        &mut self,
        level: Level<'_>,
        name: &CStr,
        file: (&File, &Meta),
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let Some(earlier) = level.earlier else {
            return Ok(false);
        };
        let copy = meta_at(earlier, name)?;
        let by_time = self.tells_by_time(file.1);
        if !self.is_copy(earlier, name, copy.as_ref(), file, by_time)? {
            return Ok(false);
        }
        if before.map(|before| before.inode) == copy.map(|copy| copy.inode) {
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

    /// Whether what is here already is up to date. It may be older than what was saved last and yet
    /// have the mark of now: then only what it holds tells.
    fn is_here(
        &mut self,
        level: Level<'_>,
        name: &CStr,
        file: (&File, &Meta),
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let by_time = !self.follows && self.tells_by_time(file.1);
        self.is_copy(level.target, name, before, file, by_time)
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
        let room = self.limit.saturating_sub(self.stats.copied_bytes);
        let copied = copy(file, found.size, &new, room)?;
        self.stats.copied_bytes += copied.ok_or_else(changes_meanwhile)?;
        self.stats.copied += 1;
        self.own(&new)?;
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
        before: Option<&Meta>,
    ) -> io::Result<bool> {
        let to = match readlinkat(source, name, Vec::new()) {
            Ok(to) => to,
            Err(Errno::INVAL | Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let same = before.is_some_and(|before| before.kind == Kind::Link && self.is_owned(before))
            && readlinkat(target, name, Vec::new())? == to;
        if !same {
            let part = self.part.open()?;
            symlinkat(&to, part, c"file")?;
            if let Some((uid, gid)) = self.owner {
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
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
        if !self.is_owned(&now) {
            self.own(target)?;
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

    fn is_owned(&self, copy: &Meta) -> bool {
        self.owner.is_none_or(|owner| owner == (copy.uid, copy.gid))
    }

    fn own(&self, file: impl AsFd) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner {
            fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(())
    }
}

fn changes_meanwhile() -> io::Error {
    io::Error::other("the workspace changed while it was saved, and would exceed its limit")
}

fn file_mode(mode: u32) -> u32 {
    mode & 0o777 | 0o600
}

fn kept_name(found: &Meta) -> CString {
    CString::new(format!("inode-{}", found.inode)).unwrap_or_default()
}
