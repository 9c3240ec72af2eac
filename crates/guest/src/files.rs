//! Files below the workspace, for the owner's file requests. Symbolic links are never followed.

use std::os::fd::OwnedFd;

use brig_linux::directory;
use brig_wire::{Base, FileInfo, FileKind};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Failure, Step};

/// The guest's own directory.
pub(crate) const RUN: &str = "/run/brig";

pub(crate) fn open_base(base: Base, workspace: &str) -> Result<OwnedFd, Failure> {
    open_directory(match base {
        Base::Workspace => workspace,
        Base::Run => RUN,
    })
}

/// Not only as a handle: its mode and its times can be changed.
pub(crate) fn open_readable(path: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).step(format!("open {path}"))
}

pub(crate) fn open_directory(path: &str) -> Result<OwnedFd, Failure> {
    rustix::fs::open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .step(format!("open {path}"))
}

fn open_beneath(base: &OwnedFd, path: &str, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
    let path = match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    };
    // Opening a FIFO must not block the guest. (With O_PATH, nothing is really opened.)
    let nonblocking = match flags.contains(OFlags::PATH) {
        true => OFlags::empty(),
        false => OFlags::NOCTTY | OFlags::NONBLOCK,
    };
    directory::open_beneath(base, path, flags | nonblocking, Mode::from_raw_mode(mode))
}

/// The first executable file with this name in these directories.
pub(crate) fn find(name: &str, directories: &[String]) -> Option<String> {
    let executable = |path: &String| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file())
            && rustix::fs::access(path.as_str(), rustix::fs::Access::EXEC_OK).is_ok()
    };
    let paths = directories.iter().map(|one| format!("{one}/{name}"));
    paths.into_iter().find(executable)
}

fn require_file(file: &OwnedFd) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode).is_file() {
        Ok(stat.st_size.cast_unsigned())
    } else {
        Err(Errno::INVAL)
    }
}

/// Opens a file to be written from its beginning. Creates missing directories above it.
pub(crate) fn create(
    base: Base,
    workspace: &str,
    path: &str,
    mode: u32,
) -> Result<OwnedFd, Failure> {
    let base = open_base(base, workspace)?;
    make_parents(&base, path).step("create directories")?;
    let mode = mode & 0o777;
    let file = open_beneath(&base, path, OFlags::WRONLY | OFlags::CREATE, mode)
        .step("open for writing")?;
    require_file(&file).step("not a regular file")?;
    rustix::fs::ftruncate(&file, 0).step("truncate")?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).step("set the mode")?;
    Ok(file)
}

fn make_parents(base: &OwnedFd, path: &str) -> Result<(), Errno> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for end in 1..parts.len() {
        let parent = open_beneath(base, &parts[..end - 1].join("/"), OFlags::PATH, 0)?;
        match rustix::fs::mkdirat(&parent, parts[end - 1], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) fn open(workspace: &str, path: &str) -> Result<(OwnedFd, u64), Failure> {
    let base = open_base(Base::Workspace, workspace)?;
    let file = open_beneath(&base, path, OFlags::RDONLY, 0).step("open for reading")?;
    let size = require_file(&file).step("not a regular file")?;
    Ok((file, size))
}

pub(crate) fn list(workspace: &str, path: &str) -> Result<Vec<FileInfo>, Failure> {
    let base = open_base(Base::Workspace, workspace)?;
    let opened = open_beneath(&base, path, OFlags::RDONLY | OFlags::DIRECTORY, 0)
        .step("open the directory")?;
    let mut entries = Vec::new();
    for name in directory::names(&opened).step("read the directory")? {
        let found = rustix::fs::statat(&opened, &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        // It may have been removed since.
        let Ok(stat) = found else { continue };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        entries.push(FileInfo {
            name: name.into_bytes(),
            kind,
            size: stat.st_size.cast_unsigned(),
            mode: stat.st_mode & 0o7777,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// The most links beside a script.
const LINKS: usize = 1024;

/// Links from a directory of [`RUN`] to what is in another one. What is there already stays.
///
/// The other directory may be one that code has made: no link in its path is followed, and what can't be linked
/// is left out.
pub(crate) fn link_beside(scratch: &str, other: &str) -> Result<(), Errno> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let names = rustix::fs::Dir::new(open_beneath(&root, other, flags, 0)?)?;
    let own = open_beneath(&root, &format!("{RUN}/{scratch}"), OFlags::PATH, 0)?;
    let other = other.trim_end_matches('/').as_bytes();
    // And `.` and `..`.
    for entry in names.take(LINKS + 2) {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            let target = [other, name.to_bytes()].join(&b'/');
            let _ = rustix::fs::symlinkat(&*target, &own, name);
        }
    }
    Ok(())
}

/// Removes a directory of [`RUN`] with the files in it.
pub(crate) fn remove_scratch(name: &str) {
    let _ = std::fs::remove_dir_all(format!("{RUN}/{name}"));
}
