//! Resolves a path as the kernel would for the caller, including the links of /proc (`self`,
//! `thread-self`, `fd`) that mean something else in each process.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use brig_linux::process_stat::read_proc_text;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::{Caller, FileId, ResolvedPath};

/// The kernel's own limit (`MAXSYMLINKS`).
const LINKS: usize = 40;
/// How much of a file the kernel reads to determine its format (`BINPRM_BUF_SIZE`).
pub(crate) const BEGINNING: usize = 256;
/// Stands for a file that is not regular, which the kernel does not start.
pub(crate) const NOT_REGULAR: Errno = Errno::ISDIR;
/// `PROC_SUPER_MAGIC`.
const PROC: i64 = 0x9fa0;
/// The inode of procfs's root directory in every mount.
const PROC_ROOT: u64 = 1;

type Found = (ResolvedPath, Option<FileId>);

impl Caller {
    /// `directory`: the descriptor that a relative path starts from.
    pub(crate) fn resolve(self, directory: Option<i32>, path: &[u8], empty_path: bool) -> Found {
        let path = Path::new(OsStr::from_bytes(path));
        if path.as_os_str().is_empty() && !empty_path {
            return (ResolvedPath::Missing(Errno::NOENT), None);
        }
        if path.is_absolute() {
            return self.find_file(path);
        }
        let base = match directory {
            Some(number) => self.proc(&format!("fd/{number}")),
            None => self.proc("cwd"),
        };
        let base = match rustix::fs::open(base, HANDLE, Mode::empty()) {
            Ok(base) => base,
            // There is no such descriptor.
            Err(Errno::NOENT) => return (ResolvedPath::Missing(Errno::BADF), None),
            Err(_) => return (ResolvedPath::Unknown, None),
        };
        if path.as_os_str().is_empty() {
            return found(Ok(base));
        }
        let straight = rustix::fs::openat2(
            &base,
            path,
            HANDLE,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        );
        found(straight.or_else(|_| self.walk(base, path)))
    }

    /// Resolves a path in the caller's root.
    pub fn find(self, path: &Path) -> ResolvedPath {
        self.find_file(path).0
    }

    pub fn find_file(self, path: &Path) -> Found {
        if !path.is_absolute() {
            return self.resolve(None, path.as_os_str().as_bytes(), false);
        }
        let Ok(root) = self.root() else {
            return (ResolvedPath::Unknown, None);
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let straight = rustix::fs::openat2(&root, path, HANDLE, Mode::empty(), resolve);
        found(straight.or_else(|_| self.walk(root, path)))
    }

    /// The first bytes of the file at a path without links, if it is still this file.
    pub(crate) fn beginning(self, path: &Path, file: FileId) -> rustix::io::Result<Vec<u8>> {
        let opened = self.open(path, file)?;
        let mut start = vec![0; BEGINNING];
        let read = rustix::io::read(&opened, &mut start)?;
        start.truncate(read);
        Ok(start)
    }

    /// Opens the regular file at a path without links, if it is still this file.
    pub(crate) fn open(self, path: &Path, file: FileId) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let root = self.root()?;
        let handle = rustix::fs::openat2(&root, path, HANDLE, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&handle)?;
        if FileId(stat.st_dev, stat.st_ino) != file {
            return Err(Errno::STALE);
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(NOT_REGULAR);
        }
        // Through the handle: the path may lead elsewhere by now.
        let again = format!("/proc/self/fd/{}", handle.as_raw_fd());
        rustix::fs::open(again, flags, Mode::empty())
    }

    fn root(self) -> rustix::io::Result<OwnedFd> {
        let flags = HANDLE | OFlags::DIRECTORY;
        rustix::fs::open(self.proc("root"), flags, Mode::empty())
    }

    /// One component at a time, for links that the kernel would resolve for this process and not for
    /// the caller.
    fn walk(self, from: OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut at = from;
        let mut left = parts(path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == "/" {
                at = self.root()?;
                continue;
            }
            let next = rustix::fs::openat(&at, &name, HANDLE | OFlags::NOFOLLOW, Mode::empty())?;
            let stat = rustix::fs::fstat(&next)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP);
            }
            if is_proc(&next)? {
                let top = rustix::fs::fstat(&at)?.st_ino == PROC_ROOT;
                if let Some("self" | "thread-self") = name.to_str().filter(|_| top) {
                    let (process, thread) = self.own_numbers().ok_or(Errno::SRCH)?;
                    left.extend(match name == "self" {
                        true => parts(Path::new(&process)),
                        false => parts(Path::new(&format!("{process}/task/{thread}"))),
                    });
                    continue;
                }
                if !top {
                    // A magic link, such as `fd/3`: it refers to an open file, not to a path.
                    at = rustix::fs::openat(&at, &name, HANDLE, Mode::empty())?;
                    continue;
                }
            }
            let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
            left.extend(parts(Path::new(OsStr::from_bytes(target.as_bytes()))));
        }
        Ok(at)
    }

    /// The ids of its process and of itself in its own PID namespace.
    fn own_numbers(self) -> Option<(String, String)> {
        let status = read_proc_text(self.proc("status")).ok()?;
        let innermost = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().last().map(str::to_owned)
        };
        Some((innermost("NStgid:")?, innermost("NSpid:")?))
    }
}

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The components of a path, last first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::CurDir => None,
        part => Some(part.as_os_str().to_owned()),
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    parts
}

fn is_proc(fd: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type == PROC)
}

fn found(opened: rustix::io::Result<OwnedFd>) -> Found {
    let file = match opened {
        Ok(file) => file,
        Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)) => {
            return (ResolvedPath::Missing(error), None);
        }
        Err(_) => return (ResolvedPath::Unknown, None),
    };
    let resolved = path_of(&file).map_or(ResolvedPath::Unknown, ResolvedPath::File);
    let stat = rustix::fs::fstat(&file).ok();
    (resolved, stat.map(|stat| FileId(stat.st_dev, stat.st_ino)))
}

fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Caller {
        Caller::new(
            rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        )
    }

    #[test]
    fn every_way_to_a_file_leads_to_it() {
        let file = std::fs::canonicalize("/bin/sh").expect("a shell");
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, at(name)).expect("a link");
        };
        let rooted = PathBuf::from(format!("/proc/self/root{}", file.display()));
        link(&rooted, "rooted");
        link(Path::new("rooted"), "again");
        link(&file, "plain");
        link(Path::new("/proc/thread-self/root"), "root");
        let open = rustix::fs::open(&file, HANDLE, Mode::empty()).expect("the file");
        let number = open.as_raw_fd();
        let process = std::process::id();
        link(Path::new(&format!("/proc/{process}/fd/{number}")), "held");
        let expected = (ResolvedPath::File(file.clone()), own().file_at(&file));
        assert!(expected.1.is_some());
        for path in [
            rooted,
            at("rooted"),
            at("again"),
            at("plain"),
            at("held"),
            at("root").join(file.strip_prefix("/").expect("absolute")),
            format!("/dev/fd/{number}").into(),
            format!("/proc/self/fd/{number}").into(),
            format!("/proc/{process}/root/proc/self/fd/{number}").into(),
            format!("/proc/self/task/{process}/fd/{number}").into(),
            format!("/proc/thread-self/fd/{number}").into(),
            format!("/proc/self/cwd/../../../../../../../..{}", file.display()).into(),
        ] {
            assert_eq!(own().find_file(&path), expected, "{path:?}");
        }
        assert_eq!(own().resolve(Some(number), b"", true), expected);
        let held = rustix::fs::open(folder.path(), HANDLE, Mode::empty()).expect("the folder");
        let relative = own().resolve(Some(held.as_raw_fd()), b"./again", false);
        assert_eq!(relative, expected);
    }

    #[test]
    fn what_leads_nowhere_is_told_as_the_kernel_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let ring = folder.path().join("ring");
        std::os::unix::fs::symlink(&ring, &ring).expect("a link");
        let missing = |error| (ResolvedPath::Missing(error), None);
        for (path, error) in [
            (ring.clone(), Errno::LOOP),
            (folder.path().join("none"), Errno::NOENT),
            ("/proc/self/exe/x".into(), Errno::NOTDIR),
            ("/proc/self/none".into(), Errno::NOENT),
        ] {
            assert_eq!(own().find_file(&path), missing(error), "{path:?}");
        }
        assert_eq!(own().resolve(None, b"", false), missing(Errno::NOENT));
        assert_eq!(own().resolve(Some(9999), b"x", false), missing(Errno::BADF));
    }
}
