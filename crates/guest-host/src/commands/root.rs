//! A root file system, looked at from outside. No link leads out of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};

/// Folders that programs are kept in beside those of `PATH`.
const BESIDE: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/games",
    "/usr/local/games",
    "/usr/libexec",
    "/usr/lib/git-core",
    "/usr/local/libexec",
    "/usr/local/libexec/git-core",
    "/usr/lib/busybox",
    "/usr/lib/klibc/bin",
    "/usr/lib/cargo/bin",
    "/usr/local/go/bin",
    "/opt/bin",
    "/snap/bin",
];

#[derive(Debug)]
pub struct Root {
    pub(super) fd: OwnedFd,
    /// Where it is, without links.
    place: PathBuf,
    /// Only what is below these is seen in the sandbox; nothing: all is.
    shown: Option<Vec<PathBuf>>,
    /// Where programs are looked for, by path inside, without links.
    pub(super) folders: Vec<Folder>,
    /// How many of them are those of `PATH`.
    pub(super) in_path: usize,
    /// Where what was found in it is kept for the next process.
    pub(super) kept_in: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Folder {
    pub path: PathBuf,
    pub fd: OwnedFd,
    pub stat: Stat,
}

impl Root {
    /// `path`: the folders of `PATH`, in order.
    pub fn open(
        place: &Path,
        path: impl IntoIterator<Item = impl AsRef<str>>,
        shown: Option<Vec<PathBuf>>,
    ) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(place, flags, Mode::empty())?;
        let mut root = Self {
            place: place_of(&fd)?,
            fd,
            shown,
            folders: Vec::new(),
            in_path: 0,
            kept_in: None,
        };
        for folder in path {
            root.add_folder(folder.as_ref());
        }
        root.in_path = root.folders.len();
        for folder in BESIDE {
            root.add_folder(folder);
        }
        Ok(root)
    }

    /// Keeps what is found in a folder that no sandbox sees, so that the next process need not look.
    pub fn kept_in(self, folder: Option<PathBuf>) -> Self {
        Self {
            kept_in: folder,
            ..self
        }
    }

    /// Which root this is, and where programs are in it.
    pub(super) fn identity(&self) -> String {
        let folders: Vec<_> = self
            .folders
            .iter()
            .map(|folder| {
                let stat = &folder.stat;
                let changed = (
                    stat.st_mtime,
                    stat.st_mtime_nsec,
                    stat.st_ctime,
                    stat.st_ctime_nsec,
                );
                (&folder.path, stat.st_dev, stat.st_ino, changed)
            })
            .collect();
        format!(
            "{:?} {folders:?} {} {:?}",
            self.place,
            self.in_path,
            self.shown()
        )
    }

    fn add_folder(&mut self, path: &str) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !path.starts_with('/') {
            return;
        }
        if let Ok((fd, path)) = self.resolve(Path::new(path), flags)
            && let Ok(stat) = rustix::fs::fstat(&fd)
            && !self.folders.iter().any(|known| known.path == path)
        {
            self.folders.push(Folder { path, fd, stat });
        }
    }

    /// What a path inside leads to, and its path inside without links.
    pub(super) fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<(OwnedFd, PathBuf)> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve)?;
        let place = place_of(&fd)?;
        let inside = place
            .strip_prefix(&self.place)
            .map_err(|_| io::Error::from(rustix::io::Errno::XDEV))?;
        Ok((fd, Path::new("/").join(inside)))
    }

    /// The regular file that a path leads to, if the sandbox can see it.
    pub(super) fn file(&self, path: &Path) -> Option<(PathBuf, Stat)> {
        let (fd, path) = self.resolve(path, OFlags::PATH | OFlags::CLOEXEC).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (regular && self.shows(&path)).then_some((path, stat))
    }

    pub(super) fn shows(&self, path: &Path) -> bool {
        let shown = self.shown.as_deref();
        shown.is_none_or(|shown| shown.iter().any(|folder| path.starts_with(folder)))
    }

    pub(super) fn shown(&self) -> Vec<PathBuf> {
        match &self.shown {
            Some(shown) => shown.clone(),
            None => vec!["/".into()],
        }
    }

    /// All programs that are found by their name.
    pub fn programs(&self) -> BTreeSet<PathBuf> {
        let mut programs = BTreeSet::new();
        for folder in &self.folders[..self.in_path] {
            let Ok(entries) = rustix::fs::Dir::read_from(&folder.fd) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().to_str() else {
                    continue;
                };
                let found = self.file(&folder.path.join(name));
                let found = found.filter(|(_, stat)| stat.st_mode & 0o111 != 0);
                programs.extend(found.map(|(path, _)| path));
            }
        }
        programs
    }

    /// The first bytes of a file.
    pub(super) fn start_of(&self, path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
        use std::io::Read;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (fd, _) = self.resolve(path, flags)?;
        let mut start = Vec::new();
        File::from(fd).take(bytes as u64).read_to_end(&mut start)?;
        Ok(start)
    }
}

impl Folder {
    pub(super) fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

fn place_of(fd: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
