//! One file as its data comes.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::place::{is_refusal, permissions, remove, times};
use crate::record::Time;
use crate::scope::{is_own, may_change};

const PIECE: usize = 32 * 1024;

#[derive(Debug)]
pub struct Writing {
    place: Place,
    mode: u32,
    modified: Time,
    size: u64,
    target: Target,
    /// Where the data goes that comes now.
    at: u64,
    /// How much of it is still to come.
    pub left: u64,
}

/// A name in a folder.
#[derive(Debug)]
pub struct Place {
    pub folder: OwnedFd,
    pub name: Vec<u8>,
}

#[derive(Debug)]
enum Target {
    Own(File),
    /// Somebody else's, whose content can be changed and nothing else.
    Foreign(File),
    /// Somebody else's, which can only be replaced. It is what is sent, up to here.
    Same(File, u64),
    /// Somebody else's, about which nothing can be done: it is what it was.
    Fixed,
}

impl Writing {
    /// In a place that is ours altogether.
    pub fn replace(place: Place, mode: u32, modified: Time, size: u64) -> io::Result<Self> {
        remove(&place.folder, &place.name, 0)?;
        let target = Target::Own(create(&place)?);
        Ok(Self::with(place, mode, modified, size, target))
    }

    /// In a place that may be somebody else's, as may the file.
    pub fn within(place: Place, mode: u32, modified: Time, size: u64) -> io::Result<Self> {
        let target = match look(&place) {
            Some(found) if !is_own(&found) && looks_alike(&found, mode) => {
                if may_change(&found, &place.folder, &place.name) {
                    Target::Foreign(rewrite(&place)?)
                } else if u64::try_from(found.st_size) == Ok(size) {
                    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                    match open(&place, flags) {
                        Ok(file) => Target::Same(file, 0),
                        Err(_) => make(&place)?,
                    }
                } else {
                    make(&place)?
                }
            }
            _ => make(&place)?,
        };
        Ok(Self::with(place, mode, modified, size, target))
    }

    fn with(place: Place, mode: u32, modified: Time, size: u64, target: Target) -> Self {
        Self {
            place,
            mode,
            modified,
            size,
            target,
            at: 0,
            left: 0,
        }
    }

    /// Data follows. Says whether it lies inside of the file.
    pub fn expect(&mut self, at: u64, length: u64) -> bool {
        (self.at, self.left) = (at, length);
        at.checked_add(length).is_some_and(|end| end <= self.size)
    }

    /// Takes what it expects of the bytes; returns the rest.
    pub fn take<'b>(&mut self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (now, rest) = bytes.split_at(count.min(bytes.len()));
        if !self.is_equal(self.at, now)? {
            self.give_up_sameness()?;
        }
        if let Target::Own(file) | Target::Foreign(file) = &self.target {
            file.write_all_at(now, self.at)?;
        }
        self.at += now.len() as u64;
        self.left -= now.len() as u64;
        Ok(rest)
    }

    pub fn close(mut self) -> io::Result<()> {
        if !self.is_equal(self.size, &[])? {
            self.give_up_sameness()?;
        }
        if let Target::Own(file) | Target::Foreign(file) = &self.target {
            file.set_len(self.size)?;
        }
        if let Target::Own(file) = &self.target {
            rustix::fs::fchmod(file, permissions(self.mode))?;
            rustix::fs::futimens(file, &times(self.modified))?;
        }
        Ok(())
    }

    /// Whether the file that is there goes on like this, with nothing but zeros before it.
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

    /// It is another one after all: a new one takes its place, with what was equal.
    fn give_up_sameness(&mut self) -> io::Result<()> {
        let fresh = make(&self.place)?;
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

fn look(place: &Place) -> Option<Stat> {
    let found = rustix::fs::statat(&place.folder, &place.name[..], AtFlags::SYMLINK_NOFOLLOW);
    let is_file = |found: &Stat| FileType::from_raw_mode(found.st_mode).is_file();
    found.ok().filter(is_file)
}

/// What is kept outside can always be read and written by its owner.
fn looks_alike(found: &Stat, mode: u32) -> bool {
    (found.st_mode | 0o600) & 0o777 == (mode | 0o600) & 0o777
}

fn open(place: &Place, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat(&place.folder, &place.name[..], flags, Mode::empty()).map(File::from)
}

fn rewrite(place: &Place) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    open(place, flags)
}

fn create(place: &Place) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::openat(&place.folder, &place.name[..], flags, mode)?.into())
}

/// An empty file. In a folder that is not our own, files can be written and neither made nor
/// removed.
fn make(place: &Place) -> io::Result<Target> {
    match remove(&place.folder, &place.name, 0) {
        Ok(()) => return create(place).map(Target::Own),
        Err(error) if is_refusal(&error) => {}
        Err(error) => return Err(error),
    }
    if look(place).is_some_and(|found| is_own(&found)) {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::chmodat(&place.folder, &place.name[..], mode, AtFlags::empty())?;
        return Ok(Target::Own(rewrite(place)?));
    }
    match rewrite(place) {
        Ok(file) => Ok(Target::Foreign(file)),
        Err(error) if is_refusal(&error.into()) => Ok(Target::Fixed),
        Err(error) => Err(error.into()),
    }
}
