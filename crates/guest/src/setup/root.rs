//! The root of the sandbox: one size-capped tmpfs for everything writable, and on it a skeleton
//! that the host's folders are attached to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_linux::mount::{READ_ONLY, set_attributes};
use brig_wire::{Setup, Step as SetupStep};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use super::sources::Sources;
use crate::{Failure, Step, proc};

/// Where the new file system is attached while it is built. Any folder that every host has.
const STAGING: &str = "/tmp";

pub fn assemble(
    setup: &Setup,
    mut sources: Sources,
    workspace: &str,
    handoff: &OwnedFd,
) -> Result<(), Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("make mounts private")?;
    let disk = Disk::mount(setup)?;
    let root = match &setup.rootfs {
        Some(_) => disk.overlay("root", vec![next(&mut sources)?])?,
        None => disk.bind_self("root")?,
    };
    let builder = Builder {
        disk: &disk,
        root: &root,
        given: setup.rootfs.is_some(),
    };
    for step in &setup.steps {
        builder.step(step, &mut sources)?;
    }
    // While the host's /proc is still in sight: the kernel allows a new one only then.
    builder.attach(&proc::fresh()?, "/proc")?;
    if setup.read_only_root {
        set_attributes(&root, READ_ONLY, false).step("make the root read-only")?;
    }
    hand_out(&disk, &builder, workspace, handoff)?;
    enter(&root)
}

fn next(sources: &mut Sources) -> Result<OwnedFd, Failure> {
    sources
        .pop_front()
        .ok_or(rustix::io::Errno::BADF)
        .step("take an opened source")
}

/// Swaps the roots and lets the host's tree go.
fn enter(root: &OwnedFd) -> Result<(), Failure> {
    rustix::process::fchdir(root).step("enter the root")?;
    rustix::process::pivot_root(".", ".").step("pivot the root")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("let the old root go")?;
    rustix::process::chdir("/").step("enter the root")
}

/// Gives the outside a view of the writable file system and of the private workspace, to measure
/// and to save them.
fn hand_out(
    disk: &Disk,
    builder: &Builder<'_>,
    workspace: &str,
    handoff: &OwnedFd,
) -> Result<(), Failure> {
    let saved = disk
        .open_folder("workspace")
        .or_else(|_| builder.target(workspace))?;
    let descriptors = [disk.tree.as_fd(), saved.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [std::io::IoSlice::new(b"d")];
    rustix::net::sendmsg(
        handoff,
        &byte,
        &mut control,
        rustix::net::SendFlags::empty(),
    )
    .step("hand out descriptors")?;
    Ok(())
}

/// The one writable file system.
struct Disk {
    tree: OwnedFd,
}

impl Disk {
    fn mount(setup: &Setup) -> Result<Self, Failure> {
        let context =
            rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("open tmpfs")?;
        for (key, value) in [
            ("size", setup.disk_bytes.to_string()),
            ("nr_inodes", setup.disk_inodes.to_string()),
            ("mode", "0755".into()),
            ("uid", setup.uid.to_string()),
            ("gid", setup.gid.to_string()),
        ] {
            rustix::mount::fsconfig_set_string(context.as_fd(), key, value)
                .step(format!("set tmpfs {key}"))?;
        }
        rustix::mount::fsconfig_create(context.as_fd()).step("create tmpfs")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let tree =
            rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
                .step("mount tmpfs")?;
        attach_at(&tree, CWD, STAGING)?;
        Ok(Self { tree })
    }

    fn make_folder(&self, name: &str, mode: u32) -> Result<(), Failure> {
        rustix::fs::mkdirat(&self.tree, name, Mode::from_raw_mode(mode))
            .step(format!("make {name}"))
    }

    fn open_folder(&self, name: &str) -> Result<OwnedFd, Failure> {
        rustix::fs::openat(
            &self.tree,
            name,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .step(format!("open {name}"))
    }

    /// A mount of one folder of the disk, not attached anywhere yet.
    fn subtree(&self, name: &str) -> Result<OwnedFd, Failure> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(&self.tree, name, flags).step(format!("clone {name}"))
    }

    fn bind_self(&self, name: &str) -> Result<OwnedFd, Failure> {
        self.make_folder(name, 0o755)?;
        let tree = self.subtree(name)?;
        attach_at(&tree, self.tree.as_fd(), name)?;
        Ok(tree)
    }

    /// A writable layer over `lower` (lowest first), mounted on the disk under `name`.
    fn overlay(&self, name: &str, lower: Vec<OwnedFd>) -> Result<OwnedFd, Failure> {
        for folder in [
            name.to_owned(),
            format!("{name}.work"),
            format!("{name}.merged"),
        ] {
            self.make_folder(&folder, 0o755)?;
        }
        let mut paths = Vec::new();
        for (index, tree) in lower.iter().enumerate() {
            let place = format!("{name}.lower{index}");
            self.make_folder(&place, 0o755)?;
            attach_at(tree, self.tree.as_fd(), &place)?;
            paths.push(format!("{STAGING}/{place}"));
        }
        paths.reverse();
        let context =
            rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open overlay")?;
        for (key, value) in [
            ("lowerdir", paths.join(":")),
            ("upperdir", format!("{STAGING}/{name}")),
            ("workdir", format!("{STAGING}/{name}.work")),
            // The only value that goes with `userxattr`.
            ("redirect_dir", "nofollow".into()),
            ("metacopy", "off".into()),
        ] {
            rustix::mount::fsconfig_set_string(context.as_fd(), key, value)
                .step(format!("set overlay {key}"))?;
        }
        rustix::mount::fsconfig_set_flag(context.as_fd(), "userxattr").step("set userxattr")?;
        rustix::mount::fsconfig_create(context.as_fd()).step("create overlay")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let tree =
            rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
                .step("mount overlay")?;
        attach_at(&tree, self.tree.as_fd(), &format!("{name}.merged"))?;
        Ok(tree)
    }
}

struct Builder<'a> {
    disk: &'a Disk,
    root: &'a OwnedFd,
    /// Whether the root was given, and so may hold names already.
    given: bool,
}

impl Builder<'_> {
    fn step(&self, step: &SetupStep, sources: &mut Sources) -> Result<(), Failure> {
        match step {
            SetupStep::Folder { path, mode } => self.folder(path, *mode),
            SetupStep::File { path, content } => {
                write_all(&self.file(path)?, content).step(format!("write {path}"))
            }
            SetupStep::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                match rustix::fs::symlinkat(target, &parent, name) {
                    Err(rustix::io::Errno::EXIST) if self.given => Ok(()),
                    made => made.step(format!("link {path}")),
                }
            }
            SetupStep::Bind { target, .. } => self.attach(&next(sources)?, target),
            SetupStep::Device { path } => self.attach(&next(sources)?, path),
            SetupStep::Private { name, target, mode } => {
                self.disk.make_folder(name, *mode)?;
                self.attach(&self.disk.subtree(name)?, target)
            }
            SetupStep::Overlay {
                lower,
                name,
                target,
            } => {
                let lower = lower
                    .iter()
                    .map(|_| next(sources))
                    .collect::<Result<_, _>>()?;
                let merged = self.disk.overlay(name, lower)?;
                self.attach(&merged, target)
            }
            SetupStep::Pts => self.pts(),
        }
    }

    fn pts(&self) -> Result<(), Failure> {
        let context =
            rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).step("open devpts")?;
        for (key, value) in [("ptmxmode", "0666"), ("mode", "0600")] {
            rustix::mount::fsconfig_set_string(context.as_fd(), key, value)
                .step(format!("set devpts {key}"))?;
        }
        rustix::mount::fsconfig_create(context.as_fd()).step("create devpts")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let tree =
            rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
                .step("mount devpts")?;
        self.attach(&tree, "/dev/pts")
    }

    /// Makes a folder and those above it, where they are missing.
    fn folder(&self, path: &str, mode: u32) -> Result<(), Failure> {
        let mut done = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let parent = self.target(&done)?;
            match rustix::fs::mkdirat(&parent, part, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).step(format!("make {path}")),
            }
            done = format!("{done}/{part}");
        }
        Ok(())
    }

    fn file(&self, path: &str) -> Result<OwnedFd, Failure> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(
            &parent,
            name,
            flags | OFlags::TRUNC,
            Mode::from_raw_mode(0o644),
        )
        .step(format!("make {path}"))
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), Failure> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.folder(folder, 0o755)?;
        Ok((self.target(folder)?, name))
    }

    /// A place below the root. A link on the way is refused: the root may be a stranger's.
    fn target(&self, path: &str) -> Result<OwnedFd, Failure> {
        let inside = path.trim_start_matches('/');
        let inside = if inside.is_empty() { "." } else { inside };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(
            self.root,
            inside,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
        .step(format!("find {path} in the root"))
    }

    /// Attaches a tree, making the place for it where there is none.
    fn attach(&self, tree: &OwnedFd, target: &str) -> Result<(), Failure> {
        if self.target(target).is_err() {
            let stat = rustix::fs::fstat(tree).step(format!("look at {target}"))?;
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                self.folder(target, 0o755)?;
            } else {
                self.file(target)?;
            }
        }
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(tree, "", self.target(target)?, "", flags)
            .step(format!("mount {target}"))
    }
}

fn attach_at(tree: &OwnedFd, folder: BorrowedFd<'_>, name: &str) -> Result<(), Failure> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", folder, name, flags).step(format!("mount {name}"))
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::write(file, bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}
