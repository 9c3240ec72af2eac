//! Which mount of a sandbox a file is on: one of its own file systems, a mounted host directory, or
//! something of the host's system.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use brig_wire::{Hello, HostDirectory, RootSource, Setup, SetupStep};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::{Failure, Step};

/// Where a mount comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountOrigin {
    /// A file system of the sandbox, with nothing of the host's on it.
    Sandbox,
    /// A host directory that the caller has mounted.
    Host { writable: bool },
    /// A part of the host's system, such as /usr, or unknown.
    Other,
}

/// The file systems of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct SandboxMounts {
    /// Devices of the sandbox's own file systems.
    own: Vec<u64>,
    /// Device and root of every mount in a host directory. Mount points don't identify them, because
    /// code may rename the directories above.
    host: Vec<(u64, PathBuf)>,
    /// The writable host directories, opened before code could rename the directories above.
    writable: Vec<Result<Arc<OwnedFd>, Errno>>,
    /// By mount id. Mounts never change while programs run, and ids are unique on the machine.
    known: HashMap<u64, MountOrigin>,
}

impl SandboxMounts {
    /// To be called before anything untrusted runs.
    pub(crate) fn read(hello: &Hello) -> Result<Option<Self>, Failure> {
        let RootSource::Setup(setup) = &hello.root else {
            return Ok(None);
        };
        let mut own = Vec::new();
        for path in own_paths(setup) {
            let stat = rustix::fs::stat(path).step(format!("look at {path}"))?;
            own.push(stat.st_dev);
        }
        let directories = &hello.confine.host_directories;
        let writable = directories.iter().filter(|one| one.writable);
        Ok(Some(Self {
            own,
            host: host_mounts(directories)?,
            writable: writable.map(|one| open_to_sync(&one.path)).collect(),
            known: HashMap::new(),
        }))
    }

    /// The host file systems that code may have written to.
    pub(crate) fn to_sync(&self) -> &[Result<Arc<OwnedFd>, Errno>] {
        &self.writable
    }

    /// The origin of an open file, which is on a mount in the namespace of this thread.
    pub(crate) fn origin_of(&mut self, thread: u32, file: &OwnedFd) -> MountOrigin {
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let Ok(stat) = stat else {
            return MountOrigin::Other;
        };
        let id = stat.stx_mnt_id;
        if let Some(known) = self.known.get(&id) {
            return *known;
        }
        // Not by the device of the file: for a file in an overlay, that may be the device of a layer.
        let mounts = brig_linux::mountinfo::read(format!("/proc/{thread}/mountinfo"));
        let Some(mount) = mounts.ok().and_then(|mounts| Mount::find(&mounts, id)) else {
            return MountOrigin::Other;
        };
        let origin = self.origin(&mount);
        self.known.insert(id, origin);
        origin
    }

    fn origin(&self, mount: &Mount) -> MountOrigin {
        if self.own.contains(&mount.device) {
            return MountOrigin::Sandbox;
        }
        let mut host = self.host.iter();
        match host.any(|(device, root)| *device == mount.device && *root == mount.root) {
            true => MountOrigin::Host {
                writable: mount.writable,
            },
            false => MountOrigin::Other,
        }
    }
}

/// Paths on the sandbox's own file systems. Overlays are among them: a socket in a lower layer is
/// not connected to the host program that listens on it.
fn own_paths(setup: &Setup) -> impl Iterator<Item = &str> {
    let steps = setup.steps.iter().filter_map(|step| match step {
        SetupStep::Private { target, .. }
        | SetupStep::Copy { target, .. }
        | SetupStep::Overlay { target, .. } => Some(target.as_str()),
        _ => None,
    });
    steps.chain(["/"])
}

/// All mounts at and below these directories.
fn host_mounts(directories: &[HostDirectory]) -> Result<Vec<(u64, PathBuf)>, Failure> {
    if directories.is_empty() {
        return Ok(Vec::new());
    }
    let mounts = brig_linux::mountinfo::read("/proc/self/mountinfo").step("read the mounts")?;
    let mounts = mounts.lines().filter_map(Mount::parse);
    let below = mounts.filter(|mount| {
        let mut directories = directories.iter();
        directories.any(|one| mount.point.starts_with(&one.path))
    });
    Ok(below.map(|mount| (mount.device, mount.root)).collect())
}

fn open_to_sync(directory: &str) -> Result<Arc<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    rustix::fs::open(directory, flags, Mode::empty()).map(Arc::new)
}

/// A line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    device: u64,
    root: PathBuf,
    point: PathBuf,
    writable: bool,
}

impl Mount {
    fn find(mounts: &str, id: u64) -> Option<Self> {
        let mut mounts = mounts.lines().filter_map(Self::parse);
        mounts.find(|mount| mount.id == id)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let id = fields.next()?.parse().ok()?;
        let (major, minor) = fields.nth(1)?.split_once(':')?;
        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
        let path = |text: &str| PathBuf::from(OsStr::from_bytes(&unescape(text.as_bytes())));
        Some(Self {
            id,
            device: rustix::fs::makedev(major, minor),
            root: path(fields.next()?),
            point: path(fields.next()?),
            writable: fields.next()?.split(',').any(|option| option == "rw"),
        })
    }
}

/// mountinfo escapes whitespace and backslashes as a backslash and three octal digits.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = match (first, code) {
            (b'\\', Some(code)) => {
                out.push(code);
                &after[3..]
            }
            _ => {
                out.push(*first);
                after
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mount_is_found_by_its_number() {
        let mounts = "12 1 0:45 / / ro,nosuid - tmpfs x rw\n\
            123 12 8:2 /a /mnt/a\\040b rw,nodev - ext4 /dev/sda2 rw\n";
        let root = Mount::find(mounts, 12).unwrap();
        assert_eq!(root.device, rustix::fs::makedev(0, 45));
        assert!(!root.writable, "the mount decides and not its file system");
        let given = Mount::find(mounts, 123).unwrap();
        assert_eq!(given.point, Path::new("/mnt/a b"));
        assert!(given.writable);
        assert_eq!(Mount::find(mounts, 1), None);
        assert_eq!(Mount::find(mounts, 2), None);
    }

    #[test]
    fn a_file_belongs_to_the_mount_it_is_on() {
        let (own, host) = (rustix::fs::makedev(0, 45), rustix::fs::makedev(8, 2));
        let mounts = SandboxMounts {
            own: vec![own],
            host: vec![(host, "/home/a".into())],
            writable: Vec::new(),
            known: HashMap::new(),
        };
        let at = |device, root: &str, point: &str| {
            mounts.origin(&Mount {
                id: 1,
                device,
                root: root.into(),
                point: point.into(),
                writable: true,
            })
        };
        let given = MountOrigin::Host { writable: true };
        assert_eq!(at(own, "/", "/tmp"), MountOrigin::Sandbox);
        assert_eq!(at(host, "/home/a", "/workspace"), given);
        assert_eq!(at(host, "/home/a", "/renamed"), given);
        assert_eq!(at(host, "/usr", "/usr"), MountOrigin::Other);
        assert_eq!(
            at(host, "/etc", "/workspace"),
            MountOrigin::Other,
            "something else can be where it was"
        );
    }
}
