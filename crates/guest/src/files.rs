//! Files below the workspace, for the outside. No symbolic link is ever followed.

use std::os::fd::{AsFd, OwnedFd};

use brig_wire::{Base, Entry, EntryKind};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::{Failure, Step};

/// The guest's own folder.
pub const RUN: &str = "/run/brig";

pub fn open_base(base: Base, workspace: &str) -> Result<OwnedFd, Failure> {
    open_folder(match base {
        Base::Workspace => workspace,
        Base::Run => RUN,
    })
}

/// One that can be read and changed itself.
pub fn open_whole(path: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).step(format!("open {path}"))
}

pub fn open_folder(path: &str) -> Result<OwnedFd, Failure> {
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
    // A pipe of the sandbox's making must not hold us up. (With PATH nothing is really opened.)
    let careful = match flags.contains(OFlags::PATH) {
        true => OFlags::empty(),
        false => OFlags::NOCTTY | OFlags::NONBLOCK,
    };
    let flags = flags | careful | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(base, path, flags, mode, resolve) {
        Err(Errno::NOSYS) => walk_beneath(base, path, flags, mode),
        opened => opened,
    }
}

/// The same, a name at a time, for kernels without that call.
fn walk_beneath(base: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    if names.contains(&"..") {
        return Err(Errno::XDEV);
    }
    let (last, above) = names.split_last().ok_or(Errno::NOENT)?;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(base, ".", folder, Mode::empty())?;
    for name in above {
        at = match rustix::fs::openat(&at, *name, folder, Mode::empty()) {
            Err(Errno::NOTDIR) if is_link(&at, name) => return Err(Errno::LOOP),
            opened => opened?,
        };
    }
    // With PATH a link itself would be opened.
    if is_link(&at, last) {
        return Err(Errno::LOOP);
    }
    rustix::fs::openat(&at, *last, flags | OFlags::NOFOLLOW, mode)
}

fn is_link(folder: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
}

/// The first of the folders that has an executable file of this name.
pub fn find(name: &str, folders: &[String]) -> Option<String> {
    let executable = |path: &String| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file())
            && rustix::fs::access(path.as_str(), rustix::fs::Access::EXEC_OK).is_ok()
    };
    let paths = folders.iter().map(|folder| format!("{folder}/{name}"));
    paths.into_iter().find(executable)
}

fn require_file(file: &OwnedFd) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode).is_file() {
        Ok(stat.st_size as u64)
    } else {
        Err(Errno::INVAL)
    }
}

/// Opens a file to be written from its beginning, making the folders above it.
pub fn create(base: Base, workspace: &str, path: &str, mode: u32) -> Result<OwnedFd, Failure> {
    let folder = open_base(base, workspace)?;
    make_parents(&folder, path).step("make folders")?;
    let mode = mode & 0o777;
    let file = open_beneath(&folder, path, OFlags::WRONLY | OFlags::CREATE, mode)
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

pub fn open(workspace: &str, path: &str) -> Result<(OwnedFd, u64), Failure> {
    let folder = open_base(Base::Workspace, workspace)?;
    let file = open_beneath(&folder, path, OFlags::RDONLY, 0).step("open for reading")?;
    let size = require_file(&file).step("not a regular file")?;
    Ok((file, size))
}

pub fn list(workspace: &str, path: &str) -> Result<Vec<Entry>, Failure> {
    let base = open_base(Base::Workspace, workspace)?;
    let folder =
        open_beneath(&base, path, OFlags::RDONLY | OFlags::DIRECTORY, 0).step("open the folder")?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&folder).step("read the folder")? {
        let entry = entry.step("read the folder")?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let look = rustix::fs::statat(folder.as_fd(), name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        // Gone in between: then it is not there.
        let Ok(stat) = look else { continue };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        };
        entries.push(Entry {
            name: name.to_bytes().to_vec(),
            kind,
            size: stat.st_size as u64,
            mode: stat.st_mode & 0o7777,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Removes a folder of [`RUN`] with the files in it.
pub fn remove_scratch(name: &str) {
    let _ = std::fs::remove_dir_all(format!("{RUN}/{name}"));
}
