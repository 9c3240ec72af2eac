//! Reading a folder, a piece at a time, while untrusted code may be writing to it.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::MAX_DEPTH;
use crate::open::{open_folder, readable, unlock, usable};
use crate::place::{is_refusal, names};
use crate::record::{Record, Time};
use crate::scope::{Scope, is_own, may_change, may_write};

/// A change within this time may hide another one in the same tick of the clock.
const TICK: Duration = Duration::from_millis(50);
const PIECE: usize = 32 * 1024;
/// How many names are looked at without anything to send.
const STEPS: usize = 256;

/// What every file looked like when it was sent.
#[derive(Debug, Default)]
pub struct Stamps(HashMap<Vec<u8>, Stamp>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    changed: Time,
}

/// Sends one folder.
#[derive(Debug)]
pub struct Sender {
    reach: Reach,
    levels: Vec<Level>,
    file: Option<Reading>,
    /// Encoded and not taken yet.
    ready: Vec<u8>,
    taken: usize,
    before: Stamps,
    now: Stamps,
    /// The first name of files that have several.
    names: HashMap<(u64, u64), Vec<u8>>,
    ended: bool,
}

/// What is looked at.
#[derive(Debug)]
enum Reach {
    /// Everything on this device.
    Device(u64),
    Scope(Scope),
}

#[derive(Debug)]
struct Level {
    folder: OwnedFd,
    names: Vec<CString>,
    path: Vec<u8>,
    /// Whether all that is in it is sent.
    whole: bool,
    /// What the folder looks like, until something in it is sent, and the folder before that.
    unsent: Option<(u32, Time)>,
    /// The mode of a folder that was closed even to its owner, until all of it is sent.
    shut: Option<Mode>,
}

impl Drop for Level {
    fn drop(&mut self) {
        if let Some(mode) = self.shut {
            let _ = rustix::fs::fchmod(&self.folder, mode);
        }
    }
}

#[derive(Debug)]
struct Reading {
    file: File,
    at: u64,
    /// Where the data ends that begins here or before.
    until: u64,
    size: u64,
}

impl Sender {
    /// Of a folder of which `before` was sent already.
    pub fn new(folder: impl AsFd, before: Stamps) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
        let device = rustix::fs::fstat(&root)?.st_dev;
        let top = Level::open(root, Vec::new())?;
        Ok(Self::with(Reach::Device(device), top, before))
    }

    /// Of a root file system, no more than its user may have changed.
    pub fn within(scope: Scope, root: impl AsFd, before: Stamps) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(root, c".", flags, Mode::empty())?;
        let mut top = Level::open(root, Vec::new())?;
        top.whole = is_whole(&top.folder)?;
        Ok(Self::with(Reach::Scope(scope), top, before))
    }

    fn with(reach: Reach, top: Level, before: Stamps) -> Self {
        Self {
            reach,
            levels: vec![top],
            file: None,
            ready: Vec::new(),
            taken: 0,
            before,
            now: Stamps::default(),
            names: HashMap::new(),
            ended: false,
        }
    }

    /// The next bytes; none at the end. Interrupted after a while in which there was nothing to
    /// send, so that whoever has other things to do gets to them.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut steps = 0;
        while self.taken == self.ready.len() && !self.ended {
            if steps == STEPS {
                return Err(io::ErrorKind::Interrupted.into());
            }
            steps += 1;
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

    /// What was sent, once all of it was.
    pub fn finish(self) -> Stamps {
        self.now
    }

    fn step(&mut self) -> io::Result<()> {
        if let Some(mut reading) = self.file.take() {
            if reading.piece(&mut self.ready)? {
                self.file = Some(reading);
            }
            return Ok(());
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
        self.announce()?;
        record.encode_into(&mut self.ready)
    }

    /// Sends the folders that were not sent yet.
    fn announce(&mut self) -> io::Result<()> {
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

    /// What is there and can be looked at. In a scope much belongs to others.
    fn found<T>(&self, found: rustix::io::Result<T>) -> io::Result<Option<T>> {
        let scoped = matches!(self.reach, Reach::Scope(_));
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::INVAL) => {
                Ok(None)
            }
            Err(Errno::ACCESS | Errno::PERM) if scoped => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// It may go, or become something else, at any time: then it is left out, or sent as it is.
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
        let Some(stat) = self.found(stat)? else {
            return Ok(());
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let wanted = match &self.reach {
            Reach::Device(device) => stat.st_dev == *device,
            Reach::Scope(scope) => {
                let changeable =
                    || kind.is_file() && may_change(&stat, &level.folder, name.to_bytes());
                !scope.leaves_out(&path) && (level.whole || kind.is_dir() || changeable())
            }
        };
        match kind {
            _ if !wanted => Ok(()),
            FileType::Directory => self.folder(name, path),
            FileType::RegularFile => self.regular(name, path),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&level.folder, name, Vec::new());
                match self.found(target)? {
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
        let opened = match open_folder(&level.folder, name) {
            Ok(folder) => usable(folder),
            Err(Errno::ACCESS) => unlock(&level.folder, name),
            Err(error) => Err(error),
        };
        let Some((folder, shut)) = self.found(opened)? else {
            return Ok(());
        };
        let found = rustix::fs::fstat(&folder)?;
        let mode = shut.map_or(mode(&found), |shut| shut.as_raw_mode());
        let whole = matches!(self.reach, Reach::Device(_)) || is_whole(&folder)?;
        let told = whole || level.whole;
        if depth > MAX_DEPTH {
            let problem = format!("folders are nested more than {MAX_DEPTH} deep");
            return if told {
                Err(io::Error::other(problem))
            } else {
                Ok(())
            };
        }
        let mut below = match Level::open(folder, path) {
            // What can't be listed is somebody else's, as all that is in it.
            Err(error) if !whole && is_refusal(&error) => return Ok(()),
            opened => opened?,
        };
        (below.shut, below.whole) = (shut, whole);
        below.unsent = Some((mode, modified(&found)));
        self.levels.push(below);
        if told { self.announce() } else { Ok(()) }
    }

    /// Whether the receiver will be able to give the file one more name here.
    fn can_be_named(&self, found: &Stat) -> bool {
        let whole = self.levels.last().is_some_and(|level| level.whole);
        matches!(self.reach, Reach::Device(_)) || (whole && is_own(found))
    }

    fn regular(&mut self, name: &CStr, path: Vec<u8>) -> io::Result<()> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let Some(file) = self.found(readable(&level.folder, name))? else {
            return Ok(());
        };
        let found = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Ok(());
        }
        if found.st_nlink > 1 && self.can_be_named(&found) {
            let file = (found.st_dev, found.st_ino);
            if let Some(first) = self.names.get(&file) {
                let first = first.clone();
                return self.put(&Record::Name { path, first });
            }
            self.names.insert(file, path.clone());
        }
        let stamp = Stamp {
            device: found.st_dev,
            inode: found.st_ino,
            size: found.st_size,
            changed: (found.st_ctime, found.st_ctime_nsec as u32),
        };
        let same = self.before.0.get(&path) == Some(&stamp);
        if same || settled(stamp.changed) {
            self.now.0.insert(path.clone(), stamp);
        }
        let size = u64::try_from(found.st_size).unwrap_or(0);
        self.put(&Record::File {
            path,
            mode: mode(&found),
            modified: modified(&found),
            size,
            same,
        })?;
        if !same {
            self.file = Some(Reading {
                file: file.into(),
                at: 0,
                until: 0,
                size,
            });
        }
        Ok(())
    }
}

impl Level {
    fn open(folder: OwnedFd, path: Vec<u8>) -> io::Result<Self> {
        let mut names = names(&folder)?;
        // Taken from the end.
        names.sort_by(|a, b| b.cmp(a));
        Ok(Self {
            folder,
            names,
            path,
            whole: true,
            unsent: None,
            shut: None,
        })
    }
}

impl Reading {
    /// Says whether there may be more.
    fn piece(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        if self.at >= self.until {
            match self.next_data()? {
                Some((start, stop)) => (self.at, self.until) = (start, stop),
                None => return Ok(false),
            }
        }
        let mut buffer = [0; PIECE];
        let want = usize::try_from(self.until - self.at).unwrap_or(PIECE);
        let count = self.file.read_at(&mut buffer[..want.min(PIECE)], self.at)?;
        if count == 0 {
            return Ok(false);
        }
        let (at, length) = (self.at, count as u32);
        // Not every file system tells where it has holes.
        if buffer[..count].iter().any(|byte| *byte != 0) {
            Record::Data { at, length }.encode_into(out)?;
            out.extend_from_slice(&buffer[..count]);
        }
        self.at += count as u64;
        Ok(true)
    }

    fn next_data(&self) -> io::Result<Option<(u64, u64)>> {
        if self.at >= self.size {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(start) => {
                let stop = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
                Ok((start < self.size).then_some((start, stop.min(self.size))))
            }
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((self.at, self.size))),
            Err(error) => Err(error.into()),
        }
    }
}

/// What belongs to the user can be opened to him, whatever its mode says now.
fn is_whole(folder: &OwnedFd) -> io::Result<bool> {
    Ok(is_own(&rustix::fs::fstat(folder)?) || may_write(folder))
}

fn mode(found: &Stat) -> u32 {
    found.st_mode & 0o777
}

fn modified(found: &Stat) -> Time {
    (found.st_mtime, found.st_mtime_nsec as u32)
}

fn settled((seconds, nanos): Time) -> bool {
    let Ok(seconds) = u64::try_from(seconds) else {
        return false;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
    let age = SystemTime::now().duration_since(changed);
    age.is_ok_and(|age| age > TICK)
}
