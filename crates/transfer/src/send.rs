//! Sends a directory, a piece at a time, while untrusted code may write to it.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use brig_linux::directory::{names, open_directory};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::cache::{Cached, FileIdentity};
use crate::entry::is_refusal;
use crate::evidence::Evidence;
use crate::file_reader::{Digest, FileReader};
use crate::owned::{make_searchable, open_readable, unlock};
use crate::record::{self, Record, Time};
use crate::scope::{Scope, is_own, may_change, may_write};
use crate::stamps::{SentFile, Stamp, Stamps, accessed};

/// How many entries are examined in one call without anything to send.
const STEPS: usize = 256;
/// How many entries a piece of a file counts as.
const PIECE_STEPS: usize = 16;

/// Sends one directory.
#[derive(Debug)]
pub struct Sender {
    selection: Selection,
    levels: Vec<Level>,
    file: Option<OpenFile>,
    evidence: Evidence,
    /// Encoded and not read yet.
    ready: Vec<u8>,
    taken: usize,
    before: Stamps,
    now: Stamps,
    /// What the receiver has already.
    cached: Cached,
    /// The first path of files with hard links.
    names: HashMap<(u64, u64), Vec<u8>>,
    ended: bool,
}

/// Which files are sent.
#[derive(Debug)]
enum Selection {
    /// Everything on this device.
    Device(u64),
    Scope(Scope),
}

#[derive(Debug)]
struct Level {
    folder: OwnedFd,
    names: Vec<CString>,
    path: Vec<u8>,
    /// Whether everything in it is sent.
    whole: bool,
    /// Mode and time of the directory. It is sent before the first of its entries.
    unsent: Option<(u32, Time)>,
    /// The mode of a directory that was opened to its owner, to be restored when it was sent.
    restore_mode: Option<Mode>,
}

impl Drop for Level {
    fn drop(&mut self) {
        if let Some(mode) = self.restore_mode {
            let _ = rustix::fs::fchmod(&self.folder, mode);
        }
    }
}

/// The regular file that is being read.
#[derive(Debug)]
struct OpenFile {
    path: Vec<u8>,
    mode: u32,
    modified: Time,
    stamp: Stamp,
    accessed: Time,
    reader: FileReader,
    /// The digest of what was sent before, while it is compared with the current content.
    compare: Option<Digest>,
}

impl Sender {
    /// Of a directory of which `before` was sent already.
    pub fn new(folder: impl AsFd, before: Stamps) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
        let device = rustix::fs::fstat(&root)?.st_dev;
        let top = Level::open(root, Vec::new())?;
        Ok(Self::with(Selection::Device(device), top, before))
    }

    /// Of a root file system, only what its user may have changed.
    pub fn within(scope: Scope, root: impl AsFd, before: Stamps) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(root, c".", flags, Mode::empty())?;
        let mut top = Level::open(root, Vec::new())?;
        top.whole = is_whole(&top.folder)?;
        Ok(Self::with(Selection::Scope(scope), top, before))
    }

    fn with(selection: Selection, top: Level, before: Stamps) -> Self {
        Self {
            selection,
            levels: vec![top],
            file: None,
            evidence: Evidence::default(),
            ready: Vec::new(),
            taken: 0,
            before,
            now: Stamps::default(),
            cached: Cached::new(),
            names: HashMap::new(),
            ended: false,
        }
    }

    /// How files that were sent before are known to hold the same.
    #[must_use]
    pub fn with_evidence(mut self, evidence: Evidence) -> Self {
        self.evidence = evidence;
        self
    }

    /// Names these files instead of sending them.
    #[must_use]
    pub fn with_cached(mut self, cached: Cached) -> Self {
        self.cached = cached;
        self
    }

    /// The next bytes; none at the end. Fails with `Interrupted` after a while without anything to send, so
    /// that a single-threaded caller can do other work.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut steps = 0;
        while self.taken == self.ready.len() && !self.ended {
            if steps >= STEPS {
                return Err(io::ErrorKind::Interrupted.into());
            }
            steps += if self.file.is_some() { PIECE_STEPS } else { 1 };
            self.ready.clear();
            self.taken = 0;
            self.step()?;
        }
        let rest = &self.ready[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }

    /// What was sent. To be called at the end.
    pub fn finish(self) -> Stamps {
        self.now
    }

    fn step(&mut self) -> io::Result<()> {
        if let Some(open) = self.file.take() {
            return self.piece(open);
        }
        let last = self.levels.len() == 1;
        let Some(level) = self.levels.last_mut() else {
            self.ended = true;
            return Ok(());
        };
        match level.names.pop() {
            Some(name) => self.entry(&name),
            None if last => {
                let found = rustix::fs::fstat(&level.folder)?;
                self.levels.clear();
                let (mode, modified) = (mode(&found), modified(&found));
                self.put(&Record::End { mode, modified })
            }
            None => {
                self.levels.pop();
                Ok(())
            }
        }
    }

    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.send_directories()?;
        record.encode_into(&mut self.ready)
    }

    /// Sends the directories on the current path that were not sent yet.
    fn send_directories(&mut self) -> io::Result<()> {
        for level in &mut self.levels {
            if let Some((mode, modified)) = level.unsent.take() {
                let path = level.path.clone();
                let folder = Record::Folder {
                    path,
                    mode,
                    modified,
                };
                folder.encode_into(&mut self.ready)?;
            }
        }
        Ok(())
    }

    /// `None` for what has disappeared or changed its type, and in a scope for files of other users.
    fn skip_unavailable<T>(&self, found: rustix::io::Result<T>) -> io::Result<Option<T>> {
        let scoped = matches!(self.selection, Selection::Scope(_));
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::INVAL) => {
                Ok(None)
            }
            Err(Errno::ACCESS | Errno::PERM) if scoped => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// An entry may disappear or be replaced at any time. Then it is skipped, or sent as it is now.
    fn entry(&mut self, name: &CStr) -> io::Result<()> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let mut path = level.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let stat = rustix::fs::statat(&level.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let Some(stat) = self.skip_unavailable(stat)? else {
            return Ok(());
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let wanted = match &self.selection {
            Selection::Device(device) => stat.st_dev == *device,
            Selection::Scope(scope) => {
                let changeable =
                    || kind.is_file() && may_change(&stat, &level.folder, name.to_bytes());
                !scope.leaves_out(&path) && (level.whole || kind.is_dir() || changeable())
            }
        };
        match kind {
            _ if !wanted => Ok(()),
            FileType::Directory => self.folder(name, path),
            FileType::RegularFile => match self.unopened(&stat, &path) {
                Some(before) => self.send_unchanged(path, &stat, before),
                None => self.regular(name, path),
            },
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&level.folder, name, Vec::new());
                match self.skip_unavailable(target)? {
                    Some(target) => self.put(&Record::Link {
                        path,
                        target: target.into_bytes(),
                    }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn folder(&mut self, name: &CStr, path: Vec<u8>) -> io::Result<()> {
        let depth = self.levels.len();
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let opened = match open_directory(&level.folder, name) {
            Ok(folder) => make_searchable(folder),
            Err(Errno::ACCESS) => unlock(&level.folder, name),
            Err(error) => Err(error),
        };
        let Some((folder, restore)) = self.skip_unavailable(opened)? else {
            return Ok(());
        };
        let found = rustix::fs::fstat(&folder)?;
        let mode = restore.map_or(mode(&found), |mode| mode.as_raw_mode());
        let whole = matches!(self.selection, Selection::Device(_)) || is_whole(&folder)?;
        let send_now = whole || level.whole;
        if depth > MAX_DEPTH {
            let problem = format!("directories are nested more than {MAX_DEPTH} deep");
            return if send_now {
                Err(io::Error::other(problem))
            } else {
                Ok(())
            };
        }
        let mut below = match Level::open(folder, path) {
            // It belongs to another user, with everything in it.
            Err(error) if !whole && is_refusal(&error) => return Ok(()),
            opened => opened?,
        };
        (below.restore_mode, below.whole) = (restore, whole);
        below.unsent = Some((mode, modified(&found)));
        self.levels.push(below);
        if send_now {
            self.send_directories()
        } else {
            Ok(())
        }
    }

    /// Whether the receiver will be able to create a hard link here.
    fn can_be_linked(&self, found: &Stat) -> bool {
        let whole = self.levels.last().is_some_and(|level| level.whole);
        matches!(self.selection, Selection::Device(_)) || (whole && is_own(found))
    }

    fn regular(&mut self, name: &CStr, path: Vec<u8>) -> io::Result<()> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let Some(file) = self.skip_unavailable(open_readable(&level.folder, name))? else {
            return Ok(());
        };
        let found = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Ok(());
        }
        if found.st_nlink > 1 && self.can_be_linked(&found) {
            let file = (found.st_dev, found.st_ino);
            if let Some(first) = self.names.get(&file) {
                let first = first.clone();
                return self.put(&Record::Name { path, first });
            }
            self.names.insert(file, path.clone());
        }
        let stamp = Stamp::of(&found);
        if !self.cached.is_empty()
            && let Some(identity) = FileIdentity::of(&file)?
            && let Some(file) = self.cached.get(&identity).copied()
        {
            return self.put(&Record::Cached {
                path,
                mode: mode(&found),
                modified: modified(&found),
                size: stamp.size(),
                file,
            });
        }
        let open = OpenFile {
            path,
            mode: mode(&found),
            modified: modified(&found),
            stamp,
            accessed: accessed(&found),
            reader: FileReader::new(file.into(), stamp.size()),
            compare: None,
        };
        let before = self.before.0.get(&open.path).copied();
        match before.filter(|before| before.stamp == stamp) {
            Some(before) if self.evidence.is_unchanged(&before, &found) => {
                self.send_unchanged(open.path, &found, before)
            }
            Some(before) => {
                let compare = Some(before.content);
                self.file = Some(OpenFile { compare, ..open });
                Ok(())
            }
            None => self.send_content(open),
        }
    }

    /// What was sent of a file that need not even be opened: most files of a large directory.
    fn unopened(&self, found: &Stat, path: &[u8]) -> Option<SentFile> {
        // The names of a file with hard links are collected when it is opened.
        if found.st_nlink > 1 || !self.cached.is_empty() {
            return None;
        }
        let before = self.before.0.get(path)?;
        self.evidence.is_unchanged(before, found).then_some(*before)
    }

    fn send_unchanged(&mut self, path: Vec<u8>, found: &Stat, sent: SentFile) -> io::Result<()> {
        self.put(&Record::File {
            path: path.clone(),
            mode: mode(found),
            modified: modified(found),
            size: sent.stamp.size(),
            same: true,
        })?;
        self.now.0.insert(path, sent);
        Ok(())
    }

    /// Its content follows.
    fn send_content(&mut self, open: OpenFile) -> io::Result<()> {
        self.put(&open.record(false))?;
        self.file = Some(open);
        Ok(())
    }

    fn piece(&mut self, mut open: OpenFile) -> io::Result<()> {
        let out = open.compare.is_none().then_some(&mut self.ready);
        if open.reader.piece(out)? {
            self.file = Some(open);
            return Ok(());
        }
        let sent = SentFile {
            stamp: open.stamp,
            accessed: open.accessed,
            content: open.reader.digest(),
        };
        match open.compare.take() {
            Some(before) if before == sent.content => {
                self.put(&open.record(true))?;
                self.now.0.insert(open.path, sent);
                Ok(())
            }
            Some(_) => {
                open.reader.restart();
                self.send_content(open)
            }
            None => {
                self.now.0.insert(open.path, sent);
                Ok(())
            }
        }
    }
}

impl OpenFile {
    fn record(&self, same: bool) -> Record {
        Record::File {
            path: self.path.clone(),
            mode: self.mode,
            modified: self.modified,
            size: self.stamp.size(),
            same,
        }
    }
}

impl Level {
    fn open(folder: OwnedFd, path: Vec<u8>) -> io::Result<Self> {
        let mut names = names(&folder)?;
        // Reversed, because names are taken from the end.
        names.sort_by(|a, b| b.cmp(a));
        Ok(Self {
            folder,
            names,
            path,
            whole: true,
            unsent: None,
            restore_mode: None,
        })
    }
}

/// A user can open own directories whatever their mode is.
fn is_whole(folder: &OwnedFd) -> io::Result<bool> {
    Ok(is_own(&rustix::fs::fstat(folder)?) || may_write(folder))
}

fn mode(found: &Stat) -> u32 {
    found.st_mode & 0o777
}

fn modified(found: &Stat) -> Time {
    record::time(found.st_mtime, found.st_mtime_nsec)
}
