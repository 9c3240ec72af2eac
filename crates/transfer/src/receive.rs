//! Making a folder equal to what is sent.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::place::{could_be_sent, is_refusal, names, open_folder, permissions, remove, times};
use crate::record::{MAX_RECORD, Record, Time};
use crate::scope::{Scope, is_own, may_write};
use crate::writing::{Place, Writing};

/// The most that is taken.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: u64,
    /// Of data.
    pub bytes: u64,
}

/// Of all paths together: every one is remembered.
const MAX_PATHS: usize = 64 * 1024 * 1024;

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
    /// How many bytes of paths may still come.
    paths: usize,
    /// The folder that was opened last: what comes next is mostly in it too.
    last: Option<(Vec<u8>, OwnedFd)>,
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
            paths: MAX_PATHS,
            last: None,
            ended: false,
        }
    }

    /// After an error nothing more may be given.
    pub fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if let Some(file) = self.file.as_mut().filter(|file| file.left > 0) {
                bytes = file.take(bytes)?;
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
        if !file.expect(at, length) {
            return Err(invalid("data outside of its file"));
        }
        self.count_bytes(length)
    }

    fn count_bytes(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bounds.bytes.checked_sub(bytes);
        self.bounds.bytes = left.ok_or_else(|| invalid("more data than the disk limit"))?;
        Ok(())
    }

    fn folder(&mut self, path: &[u8]) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode).is_dir() => {
                if self.is_foreign(&found) {
                    return Ok(());
                }
                let mode = Mode::from_raw_mode(found.st_mode & 0o7777) | Mode::RWXU;
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
            let kept = u64::try_from(found.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512);
            return self.count_bytes(kept.min(size));
        }
        let name = name.to_vec();
        let place = Place { folder, name };
        self.file = Some(match self.rest {
            Rest::Scope(_) => Writing::within(place, mode, modified, size)?,
            _ => Writing::replace(place, mode, modified, size)?,
        });
        Ok(())
    }

    fn is_foreign(&self, found: &Stat) -> bool {
        matches!(self.rest, Rest::Scope(_)) && !is_own(found)
    }

    fn close_file(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), Writing::close)
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
        let found = rustix::fs::fstat(folder)?;
        if self.is_foreign(&found) {
            return Ok(());
        }
        // What a mode says beside rights is not sent, and stays.
        let beside = Mode::from_raw_mode(found.st_mode & 0o7000);
        rustix::fs::fchmod(folder, permissions(mode) | Mode::RWXU | beside)?;
        Ok(rustix::fs::futimens(folder, &times(modified))?)
    }

    /// Removes what was not sent.
    fn prune(&self, folder: &OwnedFd, path: &mut Vec<u8>) -> io::Result<()> {
        let names = match names(folder) {
            Err(error) if matches!(self.rest, Rest::Scope(_)) && is_refusal(&error) => {
                return Ok(());
            }
            names => names?,
        };
        for name in names {
            let name = name.to_bytes();
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
        let left = self.paths.checked_sub(path.len());
        self.paths = left.ok_or_else(|| invalid("longer names than fit"))?;
        if let Rest::Scope(scope) = &self.rest
            && scope.covers(path)
        {
            return Err(invalid("a path that something else is mounted on"));
        }
        let place = self.parent(path)?;
        if !self.seen.insert(path.to_vec()) {
            return Err(invalid("a path that came before"));
        }
        Ok(place)
    }

    fn parent<'p>(&mut self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            Some(0) => return Err(invalid("a path that leads elsewhere")),
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        if let Some((known, folder)) = &self.last
            && known == above
            && is_name(name)
        {
            return Ok((folder.try_clone()?, name));
        }
        let parts = || {
            above
                .split(|byte| *byte == b'/')
                .filter(|_| slash.is_some())
        };
        if parts().count() > MAX_DEPTH || !is_name(name) || !parts().all(is_name) {
            return Err(invalid("a path that leads elsewhere"));
        }
        let mut folder = self.root.try_clone()?;
        for part in parts() {
            folder = open_folder(&folder, part)?;
        }
        self.last = Some((above.to_vec(), folder.try_clone()?));
        Ok((folder, name))
    }
}

fn is_name(part: &[u8]) -> bool {
    !matches!(part, b"" | b"." | b"..") && !part.contains(&0)
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the stream of files has {problem}"),
    )
}
