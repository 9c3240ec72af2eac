//! What is mounted below a folder comes along with it, and was not checked by its path.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::rules;

/// The mounts of this process.
pub(super) struct Mounts(String);

impl Mounts {
    pub(super) fn read() -> io::Result<Self> {
        brig_linux::mountinfo::read("/proc/self/mountinfo").map(Self)
    }

    /// Why something that is mounted below `folder` can't come along, and where it is.
    pub(super) fn problem(&self, folder: &Path) -> Option<String> {
        problem_in(&self.parse(), folder)
    }

    /// Other paths that lead to the same place, because its file system is mounted more than once.
    pub(super) fn other_paths(&self, path: &Path) -> Vec<PathBuf> {
        let mounts = self.parse();
        let above = mounts.iter().filter(|mount| path.starts_with(&mount.at));
        // Of two at the same place, the later one is seen.
        let Some(own) = above.max_by_key(|mount| mount.at.as_os_str().len()) else {
            return Vec::new();
        };
        let Ok(rest) = path.strip_prefix(&own.at) else {
            return Vec::new();
        };
        let place = own.root.join(rest);
        let same_file_system = mounts.iter().filter(|other| other.device == own.device);
        same_file_system
            .filter_map(|other| Some(other.at.join(place.strip_prefix(&other.root).ok()?)))
            .filter(|other| other != path)
            .collect()
    }

    fn parse(&self) -> Vec<Mount<'_>> {
        self.0.lines().filter_map(Mount::parse).collect()
    }
}

fn problem_in(mounts: &[Mount<'_>], folder: &Path) -> Option<String> {
    let (below, outside): (Vec<_>, Vec<_>) = mounts
        .iter()
        .partition(|mount| mount.at != folder && mount.at.starts_with(folder));
    below.into_iter().find_map(|mount| {
        let why = if rules::KERNEL_FILE_SYSTEMS
            .iter()
            .any(|(_, name)| *name == mount.kind)
            || mount.kind == "devtmpfs"
        {
            format!("it belongs to the kernel ({})", mount.kind)
        } else if outside.iter().any(|other| other.device == mount.device) {
            "its file system is also mounted elsewhere; mount it separately".to_owned()
        } else {
            return None;
        };
        let at = mount.at.display();
        Some(format!("something is mounted below it at `{at}`: {why}"))
    })
}

/// Where something is in its file system, by whatever path it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    device: String,
    path: PathBuf,
}

impl Location {
    /// Of a path without links.
    ///
    /// # Errors
    ///
    /// If it is not there, or its mount can't be seen.
    pub fn of(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty())?;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let mounts = brig_linux::mountinfo::read("/proc/self/mountinfo")?;
        id.and_then(|id| Self::in_mount(&mounts, id.trim(), &name))
            .ok_or_else(|| io::Error::other(format!("no mount is listed for `{}`", path.display())))
    }

    fn in_mount(mountinfo: &str, id: &str, name: &Path) -> Option<Self> {
        let mut mounts = mountinfo.lines().filter_map(Mount::parse);
        let mount = mounts.find(|mount| mount.id == id)?;
        let rest = name.strip_prefix(&mount.at).ok()?;
        Some(Self {
            device: mount.device.to_owned(),
            path: mount.root.join(rest),
        })
    }

    /// Whether it is the other one, or in it.
    #[must_use]
    pub fn is_below(&self, other: &Self) -> bool {
        self.is_beside(other) && self.path.starts_with(&other.path)
    }

    /// Whether both are on one file system, where a file may have names in both.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.device == other.device
    }
}

/// A line of mountinfo.
struct Mount<'a> {
    id: &'a str,
    /// What of the file system is mounted.
    root: PathBuf,
    device: &'a str,
    at: PathBuf,
    kind: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        Some(Self {
            id: left.next()?,
            device: left.nth(1)?,
            root: unescape(left.next()?),
            at: unescape(left.next()?),
            kind: right.split(' ').next()?,
        })
    }
}

/// Spaces and the like are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = match (first, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                &tail[3..]
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
30 22 254:16 / /srv/a/disk rw shared:4 - xfs /dev/vdb rw
31 22 0:40 / /srv/a/scratch rw - tmpfs tmpfs rw
32 22 254:0 /home /srv/b/home rw - ext4 /dev/vda rw
33 22 0:41 / /srv/c/a\\040name/proc rw - proc proc rw
34 22 0:42 / /srv/d rw - tmpfs tmpfs rw
";

    #[test]
    fn what_is_mounted_below_is_judged() {
        let mounts = Mounts(MOUNTS.to_owned());
        let problem = |folder: &str| mounts.problem(Path::new(folder));
        assert_eq!(problem("/srv/a"), None);
        assert_eq!(problem("/srv/d"), None);
        assert_eq!(problem("/srv/bb"), None);
        let elsewhere = problem("/srv/b").unwrap();
        assert!(elsewhere.contains("/srv/b/home"), "{elsewhere}");
        let kernel = problem("/srv/c").unwrap();
        assert!(kernel.contains("/srv/c/a name/proc"), "{kernel}");
    }

    #[test]
    fn a_place_has_a_path_by_every_mount_of_its_file_system() {
        let mounts = Mounts(MOUNTS.to_owned());
        let others = |path: &str| mounts.other_paths(Path::new(path));
        assert_eq!(others("/srv/b/home/me"), [Path::new("/home/me")]);
        assert_eq!(others("/home/me"), [Path::new("/srv/b/home/me")]);
        for alone in ["/srv/b", "/homes", "/srv/a/disk/home", "/srv/d/x"] {
            assert_eq!(others(alone), [] as [&Path; 0], "{alone}");
        }
    }

    #[test]
    fn a_place_is_the_same_by_whatever_path_it_is_mounted() {
        let at = |id, name| Location::in_mount(MOUNTS, id, Path::new(name)).unwrap();
        let home = at("22", "/home");
        assert_eq!(at("32", "/srv/b/home/me/tool"), at("22", "/home/me/tool"));
        assert!(at("32", "/srv/b/home/me").is_below(&home));
        assert!(at("32", "/srv/b/home").is_below(&home));
        assert!(!at("22", "/homes/me").is_below(&home));
        assert!(at("22", "/homes/me").is_beside(&home));
        assert!(!at("31", "/srv/a/scratch/home").is_beside(&home));
        assert_eq!(Location::in_mount(MOUNTS, "99", Path::new("/home")), None);
        // The kernel's own list has the mount of what is open.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        let (file, folder) = (path.join("file"), Location::of(&path).unwrap());
        assert!(Location::of(&file).unwrap().is_below(&folder));
        assert!(Location::of(&path.join("none")).is_err());
    }
}
