//! Copies a directory. Nothing else runs meanwhile that could change either side.
//!
//! `std::fs::copy` and `fs_extra` keep neither holes nor hard links, which a saved workspace may have.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use brig_linux::directory::{names, open_directory};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps};
use rustix::io::Errno;

const BLOCK: usize = 4096;

/// Files, directories and links, with modes and times. Special files are left out.
pub(super) fn fill(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let (from, to) = (open_directory(from, c".")?, open_directory(to, c".")?);
    let mut copy = Copy {
        root: &to,
        path: Vec::new(),
        linked: HashMap::new(),
        buffer: vec![0; 16 * BLOCK],
    };
    copy.directory(&from, &to)
}

struct Copy<'a> {
    root: &'a OwnedFd,
    /// The path of the current entry, relative to the root.
    path: Vec<u8>,
    /// Files with hard links: the inode of the original, and the path of the copy.
    linked: HashMap<u64, CString>,
    buffer: Vec<u8>,
}

impl Copy<'_> {
    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
        for name in names(from)? {
            let length = self.path.len();
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.to_bytes());
            self.entry(from, to, &name)?;
            self.path.truncate(length);
        }
        set_metadata(to, &rustix::fs::fstat(from)?)
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
        let found = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                self.directory(&open_directory(from, name)?, &open_directory(to, name)?)
            }
            FileType::RegularFile if found.st_nlink > 1 => self.linked_file(from, to, name, &found),
            FileType::RegularFile => self.file(from, to, name, &found),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new())?;
                Ok(rustix::fs::symlinkat(&target, to, name)?)
            }
            _ => Ok(()),
        }
    }

    fn linked_file(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &CStr,
        found: &Stat,
    ) -> io::Result<()> {
        if let Some(first) = self.linked.get(&found.st_ino) {
            match rustix::fs::linkat(self.root, first, to, name, AtFlags::empty()) {
                // Too deep for one path. A second copy is good enough.
                Err(Errno::NAMETOOLONG) => {}
                linked => return Ok(linked?),
            }
        }
        self.file(from, to, name, found)?;
        let path = CString::new(self.path.as_slice())?;
        self.linked.insert(found.st_ino, path);
        Ok(())
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, found: &Stat) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let read = OFlags::RDONLY | OFlags::NONBLOCK | flags;
        let from = File::from(rustix::fs::openat(from, name, read, Mode::empty())?);
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | flags;
        let to = File::from(rustix::fs::openat(
            to,
            name,
            write,
            Mode::RUSR | Mode::WUSR,
        )?);
        let mut at = 0;
        while let Some((start, stop)) = next_data(&from, at)? {
            at = start;
            while at < stop {
                let want = usize::try_from(stop - at).unwrap_or(usize::MAX);
                let want = want.min(self.buffer.len());
                let read = from.read_at(&mut self.buffer[..want], at)?;
                if read == 0 {
                    break;
                }
                self.write(&to, read, at)?;
                at += read as u64;
            }
            at = stop;
        }
        to.set_len(u64::try_from(found.st_size).unwrap_or(0))?;
        set_metadata(&to, found)
    }

    /// Blocks of zeros become holes: not every file system reports its holes, and the copy must not be
    /// larger than the original.
    fn write(&self, to: &File, length: usize, at: u64) -> io::Result<()> {
        for (index, block) in self.buffer[..length].chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                to.write_all_at(block, at + (index * BLOCK) as u64)?;
            }
        }
        Ok(())
    }
}

/// The next extent with data, at or after an offset.
fn next_data(file: &File, from: u64) -> io::Result<Option<(u64, u64)>> {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => Ok(Some((
            start,
            rustix::fs::seek(file, SeekFrom::Hole(start))?,
        ))),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn set_metadata(file: impl std::os::fd::AsFd, found: &Stat) -> io::Result<()> {
    rustix::fs::fchmod(&file, Mode::from_raw_mode(found.st_mode & 0o777))?;
    let modified = Timespec {
        tv_sec: found.st_mtime,
        tv_nsec: found.st_mtime_nsec.cast_signed(),
    };
    let times = Timestamps {
        last_access: modified,
        last_modification: modified,
    };
    Ok(rustix::fs::futimens(file, &times)?)
}
