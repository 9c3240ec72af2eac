//! Opening and listing directories without following symbolic links, while untrusted code may
//! rename and replace everything in them.
//!
//! `cap-std` does the same with a file type of its own on top of `rustix`; a few calls suffice here.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens a directory in another one. Fails with ENOTDIR or ELOOP if it is a symbolic link.
pub fn open_directory(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// The same as a handle (`O_PATH`), which needs no permission to read the directory.
pub fn open_directory_handle(parent: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// The names in an open directory, from its beginning, without `.` and `..`.
pub fn names(directory: impl AsFd) -> io::Result<Vec<CString>> {
    // On the same open file: opening it again needs a permission that may be gone by now.
    let mut entries = Dir::new(directory.as_fd().try_clone_to_owned()?)?;
    entries.rewind();
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Opens a path below a directory, which it can't leave, without following any symbolic link.
/// A link anywhere in the path is ELOOP, `..` above the directory EXDEV.
pub fn open_beneath(
    directory: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(directory.as_fd(), path, flags, mode, resolve) {
        // gVisor does not have the call.
        Err(Errno::NOSYS) => walk_beneath(directory, path, flags, mode),
        opened => opened,
    }
}

/// The same, one name at a time.
fn walk_beneath(
    directory: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let path = path.into_c_str()?;
    let path = path.to_bytes();
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let names: Vec<&[u8]> = path
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .collect();
    if names.contains(&&b".."[..]) {
        return Err(Errno::XDEV);
    }
    let mut at = open_directory_handle(directory, ".")?;
    let Some((last, parents)) = names.split_last() else {
        return rustix::fs::openat(&at, ".", flags, mode);
    };
    for name in parents {
        at = match open_directory_handle(&at, *name) {
            Err(Errno::NOTDIR) if is_link(&at, name) => return Err(Errno::LOOP),
            opened => opened?,
        };
    }
    // With O_PATH, a link itself would be opened.
    if is_link(&at, last) {
        return Err(Errno::LOOP);
    }
    rustix::fs::openat(&at, *last, flags | OFlags::NOFOLLOW, mode)
}

fn is_link(directory: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::CWD;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        fs::create_dir_all(root.join("base/a/b")).expect("directories");
        fs::write(root.join("base/a/b/file"), "x").expect("a file");
        fs::write(root.join("outside"), "secret").expect("a file");
        symlink("a", root.join("base/link")).expect("a link");
        symlink("../outside", root.join("base/a/out")).expect("a link");
        directory
    }

    #[test]
    fn links_are_not_opened_as_directories() {
        let tree = tree();
        let base = open_directory(CWD, tree.path().join("base")).expect("a directory");
        assert!(open_directory(&base, "a").is_ok(), "control");
        assert!(open_directory_handle(&base, "a").is_ok(), "control");
        for opened in [
            open_directory(&base, "link"),
            open_directory_handle(&base, "link"),
        ] {
            assert!(matches!(opened, Err(Errno::NOTDIR | Errno::LOOP)));
        }
    }

    #[test]
    fn names_are_listed_from_the_beginning_each_time() {
        let tree = tree();
        let base = open_directory(CWD, tree.path().join("base")).expect("a directory");
        for _ in 0..2 {
            let mut names = names(&base).expect("a list");
            names.sort();
            assert_eq!(names, [c"a".to_owned(), c"link".to_owned()]);
        }
    }

    #[test]
    fn a_path_stays_beneath_its_directory_with_and_without_openat2() {
        let tree = tree();
        let base = open_directory(CWD, tree.path().join("base")).expect("a directory");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        for (path, expected) in [
            ("a/b/file", None),
            ("a//b/./file", None),
            (".", None),
            ("a", None),
            ("", Some(Errno::NOENT)),
            ("a/none", Some(Errno::NOENT)),
            ("a/b/file/x", Some(Errno::NOTDIR)),
            ("link/b/file", Some(Errno::LOOP)),
            ("link", Some(Errno::LOOP)),
            ("a/out", Some(Errno::LOOP)),
            ("..", Some(Errno::XDEV)),
            ("../outside", Some(Errno::XDEV)),
            ("/etc/passwd", Some(Errno::XDEV)),
        ] {
            for flags in [flags, OFlags::PATH | OFlags::CLOEXEC] {
                let by_call = open_beneath(&base, path, flags, Mode::empty()).map(drop);
                let by_hand = walk_beneath(&base, path, flags, Mode::empty()).map(drop);
                assert_eq!(by_call.err(), expected, "{path:?}");
                assert_eq!(by_hand.err(), expected, "{path:?}");
            }
        }
    }
}
