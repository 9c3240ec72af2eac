//! Makes a directory equal to what is received.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use brig_linux::directory::{names, open_directory};
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::cache::{Cache, CachedFile};
use crate::entry::{could_be_sent, is_refusal, permissions, remove, times};
use crate::file_writer::{FileWriter, Location};
use crate::record::{MAX_RECORD, Record, Time};
use crate::scope::{Scope, is_own, may_write};
use crate::stamps::Stamps;

/// Limits for what is received.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub entries: u64,
    /// Bytes of data.
    pub bytes: u64,
}

/// Bytes of all paths together, because each path is remembered.
const MAX_PATHS: usize = 64 * 1024 * 1024;

/// Receives one directory.
#[derive(Debug)]
pub struct Receiver {
    root: OwnedFd,
    bounds: Bounds,
    unsent: Unsent,
    /// An incomplete record.
    waiting: Vec<u8>,
    file: Option<FileWriter>,
    /// The path of that file.
    path: Vec<u8>,
    /// The received files.
    stamps: Stamps,
    /// Directories with their mode and time, which are set when everything is in them.
    folders: Vec<(Vec<u8>, u32, Time)>,
    seen: HashSet<Vec<u8>>,
    /// How many bytes of paths may still be received.
    paths: usize,
    /// The directory that was opened last. The next entry is mostly in it too.
    last: Option<(Vec<u8>, OwnedFd)>,
    cache: Option<Cache>,
    ended: bool,
}

/// What was received.
#[derive(Debug, Default)]
pub struct Received {
    /// A sender that takes this as sent before sends only what has changed since.
    pub stamps: Stamps,
    /// Files of the cache that are as the sender said, and when each was last changed.
    pub checked: Vec<(u64, (i64, u32))>,
}

/// What to do with existing files that are not sent.
#[derive(Debug)]
enum Unsent {
    Remove,
    Keep,
    /// Removed if they could have been sent. Files of other users stay.
    Scope(Scope),
}

impl Receiver {
    /// Makes the directory equal to what is sent.
    pub fn exact(root: OwnedFd, bounds: Bounds) -> Self {
        Self::new(root, bounds, Unsent::Remove)
    }

    /// Adds what is sent to what exists.
    pub fn adding(root: OwnedFd, bounds: Bounds) -> Self {
        Self::new(root, bounds, Unsent::Keep)
    }

    /// Makes the part of a root file system that the user may change equal to what is sent.
    pub fn within(scope: Scope, root: OwnedFd, bounds: Bounds) -> Self {
        Self::new(root, bounds, Unsent::Scope(scope))
    }

    fn new(root: OwnedFd, bounds: Bounds, unsent: Unsent) -> Self {
        Self {
            root,
            bounds,
            unsent,
            waiting: Vec::new(),
            file: None,
            path: Vec::new(),
            stamps: Stamps::default(),
            folders: Vec::new(),
            seen: HashSet::new(),
            paths: MAX_PATHS,
            last: None,
            cache: None,
            ended: false,
        }
    }

    /// With a directory from which named files are copied. A file there that is not what the sender says is
    /// `ESTALE`.
    #[must_use]
    pub fn with_cache(mut self, directory: OwnedFd) -> Self {
        self.cache = Some(Cache::new(directory));
        self
    }

    /// After an error, nothing more may be pushed.
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
                self.record(record.ok_or_else(|| invalid("an invalid record"))?)?;
            }
        }
        Ok(())
    }

    /// Whether everything was received.
    pub fn is_complete(&self) -> bool {
        self.ended && self.waiting.is_empty()
    }

    /// To be called at the end.
    pub fn finish(self) -> Received {
        Received {
            stamps: self.stamps,
            checked: self.cache.map_or_else(Vec::new, Cache::checked),
        }
    }

    fn record(&mut self, record: Record) -> io::Result<()> {
        if self.ended {
            return Err(invalid("a record after the end"));
        }
        if let Record::Data { at, length } = record {
            return self.data(at, length);
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
            Record::Cached {
                path,
                mode,
                modified,
                size,
                file,
            } => self.copy_cached(path, mode, modified, size, &file),
            Record::Link { path, target } => {
                let (folder, name) = self.new_entry(&path)?;
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

    fn data(&mut self, at: u64, length: u32) -> io::Result<()> {
        let file = self
            .file
            .as_mut()
            .ok_or_else(|| invalid("data without a file"))?;
        if !file.expect(at, length) {
            return Err(invalid("data outside of its file"));
        }
        self.count_bytes(length.into())
    }

    fn count_bytes(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bounds.bytes.checked_sub(bytes);
        self.bounds.bytes = left.ok_or_else(|| invalid("more data than the disk limit"))?;
        Ok(())
    }

    fn folder(&mut self, path: &[u8]) -> io::Result<()> {
        let (folder, name) = self.new_entry(path)?;
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
        let (folder, name) = self.new_entry(path)?;
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
        self.path = path.to_vec();
        let name = name.to_vec();
        let location = Location { folder, name };
        self.file = Some(match self.unsent {
            Unsent::Scope(_) => FileWriter::within(location, mode, modified, size)?,
            _ => FileWriter::replace(location, mode, modified, size)?,
        });
        Ok(())
    }

    fn copy_cached(
        &mut self,
        path: Vec<u8>,
        mode: u32,
        modified: Time,
        size: u64,
        file: &CachedFile,
    ) -> io::Result<()> {
        if matches!(self.unsent, Unsent::Scope(_)) {
            return Err(invalid("a file of a cache for a whole root"));
        }
        self.count_bytes(size)?;
        let (folder, name) = self.new_entry(&path)?;
        let name = name.to_vec();
        let cache = self.cache.as_mut();
        let cache = cache.ok_or_else(|| invalid("a file of a cache that is not there"))?;
        let writer = FileWriter::replace(Location { folder, name }, mode, modified, size)?;
        let received = writer.copied(cache, file)?;
        self.stamps.0.insert(path, received);
        Ok(())
    }

    fn is_foreign(&self, found: &Stat) -> bool {
        matches!(self.unsent, Unsent::Scope(_)) && !is_own(found)
    }

    fn close_file(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        if let Some(received) = file.close()? {
            let path = std::mem::take(&mut self.path);
            self.stamps.0.insert(path, received);
        }
        Ok(())
    }

    fn name(&mut self, path: &[u8], first: &[u8]) -> io::Result<()> {
        if !self.seen.contains(first) {
            return Err(invalid("a name of a file that was not sent"));
        }
        let (there, known) = self.parent(first)?;
        let (folder, name) = self.new_entry(path)?;
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
        if !matches!(self.unsent, Unsent::Keep) {
            let root = self.root.try_clone()?;
            self.prune(&root, &mut Vec::new())?;
        }
        // Deepest first: a change in a directory changes its time.
        for (path, mode, modified) in std::mem::take(&mut self.folders).iter().rev() {
            let (folder, name) = self.parent(path)?;
            self.set_metadata(&open_directory(&folder, name)?, *mode, *modified)?;
        }
        self.set_metadata(&self.root, mode, modified)?;
        self.ended = true;
        Ok(())
    }

    fn set_metadata(&self, folder: &OwnedFd, mode: u32, modified: Time) -> io::Result<()> {
        let found = rustix::fs::fstat(folder)?;
        if self.is_foreign(&found) {
            return Ok(());
        }
        // Set-id and sticky bits are not sent, and stay.
        let special = Mode::from_raw_mode(found.st_mode & 0o7000);
        rustix::fs::fchmod(folder, permissions(mode) | Mode::RWXU | special)?;
        Ok(rustix::fs::futimens(folder, &times(modified))?)
    }

    /// Removes what was not sent.
    fn prune(&self, folder: &OwnedFd, path: &mut Vec<u8>) -> io::Result<()> {
        let names = match names(folder) {
            Err(error) if matches!(self.unsent, Unsent::Scope(_)) && is_refusal(&error) => {
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
                self.remove_unsent(folder, name, path)?;
            } else if let Ok(below) = open_directory(folder, name) {
                self.prune(&below, path)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn remove_unsent(&self, folder: &OwnedFd, name: &[u8], path: &[u8]) -> io::Result<()> {
        let Unsent::Scope(scope) = &self.unsent else {
            return remove(folder, name, 0);
        };
        if scope.leaves_out(path) || !may_write(folder) || !could_be_sent(folder, name) {
            return Ok(());
        }
        match remove(folder, name, 0) {
            // The sandbox's user could not have removed it either.
            Err(error) if is_refusal(&error) => Ok(()),
            removed => removed,
        }
    }

    /// The directory and name of a new path. It is counted.
    fn new_entry<'p>(&mut self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let left = self.bounds.entries.checked_sub(1);
        self.bounds.entries = left.ok_or_else(|| invalid("more files than fit"))?;
        let left = self.paths.checked_sub(path.len());
        self.paths = left.ok_or_else(|| invalid("longer names than fit"))?;
        if let Unsent::Scope(scope) = &self.unsent
            && scope.covers(path)
        {
            return Err(invalid("a path that something else is mounted on"));
        }
        let entry = self.parent(path)?;
        if !self.seen.insert(path.to_vec()) {
            return Err(invalid("a duplicate path"));
        }
        Ok(entry)
    }

    fn parent<'p>(&mut self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            Some(0) => return Err(invalid("a path outside of the directory")),
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
            return Err(invalid("a path outside of the directory"));
        }
        let mut folder = self.root.try_clone()?;
        for part in parts() {
            folder = open_directory(&folder, part)?;
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
