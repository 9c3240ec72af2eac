//! Making a folder equal to what is sent.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::place::{could_be_sent, is_refusal, open_folder, permissions, remove, times};
use crate::record::{MAX_RECORD, Record, Time};
use crate::scope::{Scope, is_own, may_change, may_write};

/// The most that is taken.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: u64,
    /// Of data.
    pub bytes: u64,
}

/// Takes one folder.
#[derive(Debug)]
pub struct Receiver {
    root: OwnedFd,
    bounds: Bounds,
    rest: Rest,
    /// What came and is not understood yet.
    waiting: Vec<u8>,
    file: Option<Writing>,
    /// Folders, and what they will look like when everything is in them.
    folders: Vec<(Vec<u8>, u32, Time)>,
    seen: HashSet<Vec<u8>>,
    ended: bool,
}

/// What becomes of that which is there and is not sent.
#[derive(Debug)]
enum Rest {
    Goes,
    Stays,
    /// It goes if it could have been sent. Much belongs to others, and stays theirs.
    Scope(Scope),
}

#[derive(Debug)]
struct Writing {
    /// None if it is there already.
    file: Option<File>,
    size: u64,
    /// Unless it is somebody else's.
    modified: Option<Time>,
    /// Where the data goes that comes now, and how much of it is still to come.
    at: u64,
    left: u64,
}

impl Receiver {
    /// Makes the folder equal to what is sent.
    pub fn exact(root: OwnedFd, bounds: Bounds) -> Self {
        Self::new(root, bounds, Rest::Goes)
    }

    /// Adds what is sent to what is there.
    pub fn adding(root: OwnedFd, bounds: Bounds) -> Self {
        Self::new(root, bounds, Rest::Stays)
    }

    /// Makes what the user may change of a root file system equal to what is sent.
    pub fn within(scope: Scope, root: OwnedFd, bounds: Bounds) -> Self {
        Self::new(root, bounds, Rest::Scope(scope))
    }

    fn new(root: OwnedFd, bounds: Bounds, rest: Rest) -> Self {
        Self {
            root,
            bounds,
            rest,
            waiting: Vec::new(),
            file: None,
            folders: Vec::new(),
            seen: HashSet::new(),
            ended: false,
        }
    }

    /// After an error nothing more may be given.
    pub fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if let Some(file) = self.file.as_mut().filter(|file| file.left > 0) {
                let count = usize::try_from(file.left).unwrap_or(usize::MAX);
                let (now, rest) = bytes.split_at(count.min(bytes.len()));
                if let Some(open) = &file.file {
                    open.write_all_at(now, file.at)?;
                }
                file.at += now.len() as u64;
                file.left -= now.len() as u64;
                bytes = rest;
                continue;
            }
            let need = match self.waiting.first_chunk::<4>() {
                Some(length) => 4 + u32::from_le_bytes(*length) as usize,
                None => 4,
            };
            if !(4..=MAX_RECORD).contains(&need) {
                return Err(invalid("a record too long"));
            }
            let (now, rest) = bytes.split_at((need - self.waiting.len()).min(bytes.len()));
            self.waiting.extend_from_slice(now);
            bytes = rest;
            if let Some((length, record)) = self.waiting.split_first_chunk::<4>()
                && u32::from_le_bytes(*length) as usize == record.len()
            {
                let record = Record::decode(record);
                self.waiting.clear();
                self.record(record.ok_or_else(|| invalid("no record"))?)?;
            }
        }
        Ok(())
    }

    /// Whether all of it has come.
    pub fn is_complete(&self) -> bool {
        self.ended && self.waiting.is_empty()
    }

    fn record(&mut self, record: Record) -> io::Result<()> {
        if self.ended {
            return Err(invalid("a record after the end"));
        }
        if let Record::Data { at, length } = record {
            return self.data(at, length.into());
        }
        self.close_file()?;
        match record {
            Record::Folder {
                path,
                mode,
                modified,
            } => {
                self.folder(&path)?;
                self.folders.push((path, mode, modified));
                Ok(())
            }
            Record::File {
                path,
                mode,
                modified,
                size,
                same,
            } => self.open_file(&path, mode, modified, size, same),
            Record::Link { path, target } => {
                let (folder, name) = self.place(&path)?;
                let now = rustix::fs::readlinkat(&folder, name, Vec::new());
                if now.is_ok_and(|now| now.as_bytes() == target) {
                    return Ok(());
                }
                remove(&folder, name, 0)?;
                Ok(rustix::fs::symlinkat(&target, &folder, name)?)
            }
            Record::Name { path, first } => self.name(&path, &first),
            Record::End { mode, modified } => self.end(mode, modified),
            Record::Data { .. } => Ok(()),
        }
    }

    fn data(&mut self, at: u64, length: u64) -> io::Result<()> {
        let file = self
            .file
            .as_mut()
            .ok_or_else(|| invalid("data of no file"))?;
        let inside = at.checked_add(length).is_some_and(|end| end <= file.size);
        if !inside {
            return Err(invalid("data outside of its file"));
        }
        let left = self.bounds.bytes.checked_sub(length);
        self.bounds.bytes = left.ok_or_else(|| invalid("more data than fits"))?;
        (file.at, file.left) = (at, length);
        Ok(())
    }

    fn folder(&mut self, path: &[u8]) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode).is_dir() => {
                if self.is_foreign(&found) {
                    return Ok(());
                }
                let mode = Mode::from_raw_mode(found.st_mode & 0o777) | Mode::RWXU;
                return Ok(rustix::fs::chmodat(&folder, name, mode, AtFlags::empty())?);
            }
            Ok(_) => remove(&folder, name, 0)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(rustix::fs::mkdirat(&folder, name, Mode::RWXU)?)
    }

    fn open_file(
        &mut self,
        path: &[u8],
        mode: u32,
        modified: Time,
        size: u64,
        same: bool,
    ) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        if same {
            let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let file = FileType::from_raw_mode(found.st_mode).is_file();
            if !file || u64::try_from(found.st_size) != Ok(size) {
                return Err(invalid("a file that was never sent"));
            }
            return Ok(());
        }
        let (file, own) = if self.is_there(&folder, name, mode, modified, size) {
            (None, false)
        } else {
            let (file, own) = self.fresh_file(&folder, name)?;
            if own {
                rustix::fs::fchmod(&file, permissions(mode))?;
            }
            (Some(file.into()), own)
        };
        self.file = Some(Writing {
            file,
            size,
            modified: own.then_some(modified),
            at: 0,
            left: 0,
        });
        Ok(())
    }

    fn is_foreign(&self, found: &Stat) -> bool {
        matches!(self.rest, Rest::Scope(_)) && !is_own(found)
    }

    /// Whether somebody else's file is still what it was.
    fn is_there(&self, folder: &OwnedFd, name: &[u8], mode: u32, time: Time, size: u64) -> bool {
        let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| {
            self.is_foreign(&found)
                && FileType::from_raw_mode(found.st_mode).is_file()
                && u64::try_from(found.st_size) == Ok(size)
                && (found.st_mtime, found.st_mtime_nsec as u32) == time
                && found.st_mode & 0o777 == mode & 0o777
                && !may_change(&found, folder, name)
        })
    }

    /// An empty file, and whether it is our own: in a folder that is not, files can be written and
    /// never made.
    fn fresh_file(&self, folder: &OwnedFd, name: &[u8]) -> io::Result<(OwnedFd, bool)> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match remove(folder, name, 0) {
            Err(error) if matches!(self.rest, Rest::Scope(_)) && is_refusal(&error) => {}
            removed => {
                removed?;
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let file = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
                return Ok((file, true));
            }
        }
        let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let own = is_own(&found) && FileType::from_raw_mode(found.st_mode).is_file();
        if own {
            rustix::fs::chmodat(folder, name, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        }
        let flags = flags | OFlags::TRUNC | OFlags::NONBLOCK;
        Ok((rustix::fs::openat(folder, name, flags, Mode::empty())?, own))
    }

    fn close_file(&mut self) -> io::Result<()> {
        let Some(writing) = self.file.take() else {
            return Ok(());
        };
        if let Some(file) = writing.file {
            file.set_len(writing.size)?;
            if let Some(modified) = writing.modified {
                rustix::fs::futimens(&file, &times(modified))?;
            }
        }
        Ok(())
    }

    fn name(&mut self, path: &[u8], first: &[u8]) -> io::Result<()> {
        if !self.seen.contains(first) {
            return Err(invalid("a name of a file that was not sent"));
        }
        let (there, known) = self.parent(first)?;
        let (folder, name) = self.place(path)?;
        let inode = |folder: &OwnedFd, name: &[u8]| {
            let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            found.map(|found| found.st_ino)
        };
        if inode(&folder, name) == inode(&there, known) {
            return Ok(());
        }
        remove(&folder, name, 0)?;
        let linked = rustix::fs::linkat(&there, known, &folder, name, AtFlags::empty());
        Ok(linked?)
    }

    fn end(&mut self, mode: u32, modified: Time) -> io::Result<()> {
        if !matches!(self.rest, Rest::Stays) {
            let root = self.root.try_clone()?;
            self.prune(&root, &mut Vec::new())?;
        }
        // From the inside out: what is done in a folder changes its time.
        for (path, mode, modified) in std::mem::take(&mut self.folders).iter().rev() {
            let (folder, name) = self.parent(path)?;
            self.dress(&open_folder(&folder, name)?, *mode, *modified)?;
        }
        self.dress(&self.root, mode, modified)?;
        self.ended = true;
        Ok(())
    }

    fn dress(&self, folder: &OwnedFd, mode: u32, modified: Time) -> io::Result<()> {
        if self.is_foreign(&rustix::fs::fstat(folder)?) {
            return Ok(());
        }
        rustix::fs::fchmod(folder, permissions(mode) | Mode::RWXU)?;
        Ok(rustix::fs::futimens(folder, &times(modified))?)
    }

    /// Removes what was not sent.
    fn prune(&self, folder: &OwnedFd, path: &mut Vec<u8>) -> io::Result<()> {
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if !self.seen.contains(path.as_slice()) {
                self.drop_rest(folder, name, path)?;
            } else if let Ok(below) = open_folder(folder, name) {
                self.prune(&below, path)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn drop_rest(&self, folder: &OwnedFd, name: &[u8], path: &[u8]) -> io::Result<()> {
        let Rest::Scope(scope) = &self.rest else {
            return remove(folder, name, 0);
        };
        if scope.leaves_out(path) || !may_write(folder) || !could_be_sent(folder, name) {
            return Ok(());
        }
        match remove(folder, name, 0) {
            // It could not have been removed by its user either.
            Err(error) if is_refusal(&error) => Ok(()),
            removed => removed,
        }
    }

    /// Where a new path goes. It is counted.
    fn place<'p>(&mut self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let left = self.bounds.entries.checked_sub(1);
        self.bounds.entries = left.ok_or_else(|| invalid("more files than fit"))?;
        let place = self.parent(path)?;
        if !self.seen.insert(path.to_vec()) {
            return Err(invalid("a path that came before"));
        }
        Ok(place)
    }

    fn parent<'p>(&self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = parts.pop().unwrap_or_default();
        let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
        if parts.len() > MAX_DEPTH || !is_name(name) || !parts.iter().all(|part| is_name(part)) {
            return Err(invalid("a path that leads elsewhere"));
        }
        let mut folder = self.root.try_clone()?;
        for part in parts {
            folder = open_folder(&folder, part)?;
        }
        Ok((folder, name))
    }
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the stream of files has {problem}"),
    )
}
