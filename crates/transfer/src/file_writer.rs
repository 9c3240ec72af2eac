//! Writes one file while its data is received.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use sha2::{Digest as _, Sha256};

use crate::cache::{Cache, CachedFile};
use crate::entry::{is_refusal, permissions, remove, times};
use crate::file_reader::{Digest, hash_position};
use crate::record::Time;
use crate::scope::{is_own, may_change};
use crate::stamps::{SentFile, Stamp, accessed};

const PIECE: usize = 32 * 1024;

#[derive(Debug)]
pub(crate) struct FileWriter {
    location: Location,
    mode: u32,
    modified: Time,
    size: u64,
    target: Target,
    /// The offset of the next data.
    at: u64,
    /// How much of the current piece is missing.
    pub left: u64,
    /// Of what was received, as a reader of the file would compute it.
    hash: Sha256,
}

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct Location {
    pub folder: OwnedFd,
    pub name: Vec<u8>,
}

#[derive(Debug)]
enum Target {
    Own(File),
    /// A file of another user whose content can be changed, but nothing else.
    Foreign(File),
    /// A file of another user that can only be replaced. It is equal to the sent content up to here.
    Same(File, u64),
    /// A file of another user that can't be changed at all, so it is what it was.
    Fixed,
}

impl FileWriter {
    /// In a directory where everything is our own.
    pub(crate) fn replace(
        location: Location,
        mode: u32,
        modified: Time,
        size: u64,
    ) -> io::Result<Self> {
        remove(&location.folder, &location.name, 0)?;
        let target = Target::Own(create(&location)?);
        Ok(Self::with(location, mode, modified, size, target))
    }

    /// In a directory that may belong to another user, as may the file.
    pub(crate) fn within(
        location: Location,
        mode: u32,
        modified: Time,
        size: u64,
    ) -> io::Result<Self> {
        let target = match existing_file(&location) {
            Some(found) if !is_own(&found) && has_same_mode(&found, mode) => {
                if may_change(&found, &location.folder, &location.name) {
                    Target::Foreign(rewrite(&location)?)
                } else if u64::try_from(found.st_size) == Ok(size) {
                    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                    match open(&location, flags) {
                        Ok(file) => Target::Same(file, 0),
                        Err(_) => make(&location)?,
                    }
                } else {
                    make(&location)?
                }
            }
            _ => make(&location)?,
        };
        Ok(Self::with(location, mode, modified, size, target))
    }

    fn with(location: Location, mode: u32, modified: Time, size: u64, target: Target) -> Self {
        Self {
            location,
            mode,
            modified,
            size,
            target,
            at: 0,
            left: 0,
            hash: Sha256::new(),
        }
    }

    /// Data follows. Returns whether it is within the file.
    pub(crate) fn expect(&mut self, at: u64, length: u32) -> bool {
        (self.at, self.left) = (at, length.into());
        hash_position(&mut self.hash, at, length);
        at.checked_add(self.left)
            .is_some_and(|end| end <= self.size)
    }

    /// Takes the expected bytes and returns the rest.
    pub(crate) fn take<'b>(&mut self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (now, rest) = bytes.split_at(count.min(bytes.len()));
        self.hash.update(now);
        if !self.is_equal(self.at, now)? {
            self.replace_existing()?;
        }
        if let Target::Own(file) | Target::Foreign(file) = &self.target {
            file.write_all_at(now, self.at)?;
        }
        self.at += now.len() as u64;
        self.left -= now.len() as u64;
        Ok(rest)
    }

    /// What it is now, if it is a new file.
    pub(crate) fn close(mut self) -> io::Result<Option<SentFile>> {
        if !self.is_equal(self.size, &[])? {
            self.replace_existing()?;
        }
        if let Target::Own(file) | Target::Foreign(file) = &self.target {
            file.set_len(self.size)?;
        }
        let Target::Own(file) = &self.target else {
            return Ok(None);
        };
        let content = self.hash.finalize().into();
        finished(file, self.mode, self.modified, content).map(Some)
    }

    /// Takes the whole content from a cache.
    pub(crate) fn copied(self, cache: &mut Cache, cached: &CachedFile) -> io::Result<SentFile> {
        let Target::Own(file) = &self.target else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        cache.copy(cached, self.size, file)?;
        finished(file, self.mode, self.modified, cached.digest)
    }

    /// Whether the existing file continues with these bytes, with nothing but zeros before them.
    fn is_equal(&mut self, at: u64, bytes: &[u8]) -> io::Result<bool> {
        let Target::Same(file, equal) = &mut self.target else {
            return Ok(true);
        };
        let mut buffer = [0; PIECE];
        while *equal < at {
            let want = usize::try_from(at - *equal).map_or(PIECE, |left| left.min(PIECE));
            let count = file.read_at(&mut buffer[..want], *equal)?;
            if count == 0 || buffer[..count].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            *equal += count as u64;
        }
        for piece in bytes.chunks(PIECE) {
            let now = &mut buffer[..piece.len()];
            match file.read_exact_at(now, *equal) {
                Ok(()) if *equal >= at && now == piece => *equal += piece.len() as u64,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The file differs after all: replaces it with a new one that starts with the equal part.
    fn replace_existing(&mut self) -> io::Result<()> {
        let fresh = make(&self.location)?;
        if let (Target::Same(old, equal), Target::Own(new)) = (&self.target, &fresh) {
            let mut buffer = [0; PIECE];
            let mut at = 0;
            while at < *equal {
                let want = usize::try_from(*equal - at).map_or(PIECE, |left| left.min(PIECE));
                old.read_exact_at(&mut buffer[..want], at)?;
                new.write_all_at(&buffer[..want], at)?;
                at += want as u64;
            }
        }
        self.target = fresh;
        Ok(())
    }
}

/// Gives a complete file its mode and time. What it is now.
fn finished(file: &File, mode: u32, modified: Time, content: Digest) -> io::Result<SentFile> {
    rustix::fs::fchmod(file, permissions(mode))?;
    rustix::fs::futimens(file, &times(modified))?;
    let found = rustix::fs::fstat(file)?;
    Ok(SentFile {
        stamp: Stamp::of(&found),
        accessed: accessed(&found),
        content,
    })
}

fn existing_file(location: &Location) -> Option<Stat> {
    let found = rustix::fs::statat(
        &location.folder,
        &location.name[..],
        AtFlags::SYMLINK_NOFOLLOW,
    );
    let is_file = |found: &Stat| FileType::from_raw_mode(found.st_mode).is_file();
    found.ok().filter(is_file)
}

/// Compares modes. The copy outside is always readable and writable by its owner, so those bits differ.
fn has_same_mode(found: &Stat, mode: u32) -> bool {
    (found.st_mode | 0o600) & 0o777 == (mode | 0o600) & 0o777
}

fn open(location: &Location, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat(&location.folder, &location.name[..], flags, Mode::empty()).map(File::from)
}

fn rewrite(location: &Location) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    open(location, flags)
}

fn create(location: &Location) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::openat(&location.folder, &location.name[..], flags, mode)?.into())
}

/// An empty file. In a directory of another user, files may be writable but can't be created or removed.
fn make(location: &Location) -> io::Result<Target> {
    match remove(&location.folder, &location.name, 0) {
        Ok(()) => return create(location).map(Target::Own),
        Err(error) if is_refusal(&error) => {}
        Err(error) => return Err(error),
    }
    if existing_file(location).is_some_and(|found| is_own(&found)) {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::chmodat(&location.folder, &location.name[..], mode, AtFlags::empty())?;
        return Ok(Target::Own(rewrite(location)?));
    }
    match rewrite(location) {
        Ok(file) => Ok(Target::Foreign(file)),
        Err(error) if is_refusal(&error.into()) => Ok(Target::Fixed),
        Err(error) => Err(error.into()),
    }
}
