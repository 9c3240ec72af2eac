//! The root of the sandbox: one tmpfs of limited size for everything writable, and on it the mount
//! points for host directories.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use brig_linux::directory::{open_beneath, open_directory_handle};
use brig_linux::mount::{NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY, set_attributes};
use brig_wire::{Setup, SetupStep};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::disk::{Disk, attach_at};
use super::sources::Sources;
use super::{copy, denied, handoff};
use crate::{Failure, Step, proc};

pub(super) fn assemble(
    setup: &Setup,
    mut sources: Sources,
    shim: Option<&OwnedFd>,
    workspace: &str,
    handoff: &OwnedFd,
) -> Result<(), Failure> {
    let disk = Disk::mount(setup)?;
    let root = match &setup.rootfs {
        Some(_) => {
            let given = next(&mut sources)?;
            given_root(&disk, given, setup, &sources)?
        }
        None => disk.bind_self("root")?,
    };
    let builder = Builder::new(&disk, &root, setup.rootfs.is_some());
    for step in &setup.steps {
        builder.step(step, &mut sources)?;
    }
    if let (Some(denied), Some(shim)) = (&setup.denied, shim) {
        denied::cover(denied, shim, &disk, &builder)?;
    }
    // Before the host's /proc is unmounted: the kernel allows a new procfs only while a complete one is
    // visible.
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

/// A given root under a writable layer. Mount points are created in that layer before it is mounted:
/// the guest may have no permission to create them in the given root, and if the root has something
/// else at their paths, such as a link, the layer covers it.
fn given_root(
    disk: &Disk,
    given: OwnedFd,
    setup: &Setup,
    sources: &Sources,
) -> Result<OwnedFd, Failure> {
    disk.make_directory("root", 0o755)?;
    let layer = disk.open_directory("root")?;
    let names = Builder::new(disk, &layer, true);
    let mut sources = sources.iter();
    for step in &setup.steps {
        match step {
            SetupStep::Bind { target, .. } | SetupStep::Device { path: target } => {
                let source = sources
                    .next()
                    .ok_or(rustix::io::Errno::BADF)
                    .step("find a source")?;
                names.make_mount_point(source, target)?;
            }
            SetupStep::Overlay { lower, target, .. } => {
                sources.by_ref().take(lower.len()).for_each(drop);
                names.directory(target, 0o755)?;
            }
            SetupStep::Copy { target, .. } => {
                sources.next();
                names.directory(target, 0o755)?;
            }
            SetupStep::Private { target, .. } => drop(names.directory(target, 0o755)?),
            SetupStep::Directory { path, mode } => drop(names.directory(path, *mode)?),
            SetupStep::Pts => drop(names.directory("/dev/pts", 0o755)?),
            SetupStep::File { path, .. } => drop(names.file(path)?),
            SetupStep::Symlink { .. } | SetupStep::Hide { .. } | SetupStep::Pin { .. } => {}
        }
    }
    names.directory("/proc", 0o755)?;
    if let Some(denied) = &setup.denied {
        names.directory(&denied.directory, 0o755)?;
    }
    disk.hide_lower("root/dev")?;
    disk.overlay("root", vec![given])
}

/// Makes this the root, and unmounts the host's tree.
fn enter(root: &OwnedFd) -> Result<(), Failure> {
    rustix::process::fchdir(root).step("enter the root")?;
    rustix::process::pivot_root(".", ".").step("pivot the root")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("detach the old root")?;
    rustix::process::chdir("/").step("enter the root")
}

/// Hands the writable file system and the workspace to the owner, to measure and to save them.
fn hand_out(
    disk: &Disk,
    builder: &Builder<'_>,
    workspace: &str,
    handoff: &OwnedFd,
) -> Result<(), Failure> {
    let saved = match disk.open_directory("workspace") {
        Ok(private) => Rc::new(private),
        Err(_) => builder.directory(workspace, 0o755)?,
    };
    handoff::send(handoff, b'd', &[disk.tree.as_fd(), saved.as_fd()])
}

pub(super) struct Builder<'a> {
    disk: &'a Disk,
    root: &'a OwnedFd,
    /// Whether the root was given, and so may contain files already.
    given: bool,
    /// Open directories, by path.
    directories: RefCell<HashMap<String, Rc<OwnedFd>>>,
    /// Whether the empty file and directory for hiding were created.
    covers: Cell<bool>,
}

impl<'a> Builder<'a> {
    fn new(disk: &'a Disk, root: &'a OwnedFd, given: bool) -> Self {
        Self {
            disk,
            root,
            given,
            directories: RefCell::default(),
            covers: Cell::new(false),
        }
    }

    fn step(&self, step: &SetupStep, sources: &mut Sources) -> Result<(), Failure> {
        match step {
            SetupStep::Directory { path, mode } => self.directory(path, *mode).map(drop),
            SetupStep::File { path, content } => {
                write_all(&self.file(path)?, content).step(format!("write {path}"))
            }
            SetupStep::Symlink { path, target } => {
                let (above, name) = split(path);
                match rustix::fs::symlinkat(target, &*self.directory(above, 0o755)?, name) {
                    Err(rustix::io::Errno::EXIST) if self.given => Ok(()),
                    made => made.step(format!("link {path}")),
                }
            }
            SetupStep::Bind { target, .. } => self.attach(&next(sources)?, target),
            SetupStep::Device { path } => self.attach(&next(sources)?, path),
            SetupStep::Private { name, target, mode } => {
                self.disk.make_directory(name, *mode)?;
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
                self.disk.make_directory(name, 0o755)?;
                let merged = self.disk.overlay(name, lower)?;
                self.attach(&merged, target)
            }
            SetupStep::Copy { name, target, .. } => {
                self.disk.make_directory(name, 0o755)?;
                copy::fill(&next(sources)?, &self.disk.open_directory(name)?)
                    .step("copy the saved files")?;
                self.attach(&self.disk.subtree(name)?, target)
            }
            SetupStep::Hide { path, identity } => self.hide(path, *identity),
            SetupStep::Pin { path, identity } => self.pin(path, *identity),
            SetupStep::Pts => self.pts(),
        }
    }

    fn pts(&self) -> Result<(), Failure> {
        let context =
            rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).step("open devpts")?;
        // The kernel has one count of terminals for the whole machine.
        for (key, value) in [("ptmxmode", "0666"), ("mode", "0600"), ("max", "256")] {
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

    /// Opens a directory below the root, and creates it and its parents if they are missing. A link in
    /// the path is refused, because a given root is not trusted.
    fn directory(&self, path: &str, mode: u32) -> Result<Rc<OwnedFd>, Failure> {
        let path = path.trim_matches('/');
        if let Some(known) = self.directories.borrow().get(path) {
            return Ok(Rc::clone(known));
        }
        let directory = match split(path) {
            (_, "") => open_directory_handle(self.root, "."),
            (above, name) => {
                let above = self.directory(above, 0o755)?;
                match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => open_directory_handle(&above, name),
                    Err(error) => Err(error),
                }
            }
        };
        let directory = Rc::new(directory.step(format!("make /{path}"))?);
        self.directories
            .borrow_mut()
            .insert(path.to_owned(), Rc::clone(&directory));
        Ok(directory)
    }

    fn file(&self, path: &str) -> Result<OwnedFd, Failure> {
        let (above, name) = split(path);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (above, mode) = (self.directory(above, 0o755)?, Mode::from_raw_mode(0o644));
        rustix::fs::openat(&above, name, flags | OFlags::TRUNC, mode).step(format!("make {path}"))
    }

    /// Creates the mount point for a file or directory.
    fn make_mount_point(&self, tree: &OwnedFd, target: &str) -> Result<(), Failure> {
        let stat = rustix::fs::fstat(tree).step(format!("look at {target}"))?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            self.directory(target, 0o755).map(drop)
        } else {
            self.file(target).map(drop)
        }
    }

    /// Attaches a mount, and creates its mount point.
    pub(super) fn attach(&self, tree: &OwnedFd, target: &str) -> Result<(), Failure> {
        self.make_mount_point(tree, target)?;
        let (above, name) = split(target);
        attach_at(tree, self.directory(above, 0o755)?.as_fd(), name)?;
        // Descriptors that were opened there before refer to what is now below the mount.
        let path = target.trim_matches('/');
        self.directories.borrow_mut().retain(|known, _| {
            known
                .strip_prefix(path)
                .is_none_or(|rest| !(rest.is_empty() || rest.starts_with('/')))
        });
        Ok(())
    }
}

impl Builder<'_> {
    /// Covers a file with another. A missing file needs no cover.
    pub(super) fn cover(&self, tree: &OwnedFd, path: &[u8]) -> Result<(), Failure> {
        let inside = path.strip_prefix(b"/").unwrap_or(path);
        let path = String::from_utf8_lossy(path);
        let found = match open_beneath(self.root, inside, OFlags::PATH, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(()),
            Err(error) => return Err(error).step(format!("find {path}")),
        };
        let stat = rustix::fs::fstat(&found).step(format!("look at {path}"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(tree, "", &found, "", flags).step(format!("cover {path}"))
    }
}

impl Builder<'_> {
    /// Covers a mounted file or directory with an empty one. Fails if it is not there any more: it could
    /// have been renamed, and would be visible under the new name.
    fn hide(&self, path: &[u8], identity: (u64, u64)) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(path);
        let (found, stat) = self.checked(path, identity, "hide")?;
        let cover = match FileType::from_raw_mode(stat.st_mode).is_dir() {
            true => "empty/directory",
            false => "empty/file",
        };
        self.make_covers()?;
        // From an attached mount: before Linux 6.15, a detached one can't be cloned.
        let cover = self.disk.subtree(cover)?;
        set_attributes(&cover, READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC, false)
            .step("make a cover read-only")?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&cover, "", &found, "", flags).step(format!("hide {name}"))
    }

    /// Makes a directory a mount point, with all mounts below it.
    fn pin(&self, path: &[u8], identity: (u64, u64)) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(path);
        let (found, _) = self.checked(path, identity, "pin")?;
        let clone = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(&found, "", clone).step(format!("clone {name}"))?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&tree, "", &found, "", flags).step(format!("pin {name}"))
    }

    /// Opens what the plan has found in a mount. If the last component is a link, the link itself.
    fn checked(
        &self,
        path: &[u8],
        identity: (u64, u64),
        purpose: &str,
    ) -> Result<(OwnedFd, Stat), Failure> {
        let name = String::from_utf8_lossy(path);
        let inside = path.strip_prefix(b"/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let found = rustix::fs::openat2(self.root, inside, flags, Mode::empty(), resolve)
            .step(format!("find {name} to {purpose} it"))?;
        let stat = rustix::fs::fstat(&found).step(format!("look at {name}"))?;
        if (stat.st_dev, stat.st_ino) != identity {
            return Err(std::io::Error::from(Errno::STALE)).step(format!(
                "{purpose} {name}: it is no longer what was checked"
            ));
        }
        Ok((found, stat))
    }

    fn make_covers(&self) -> Result<(), Failure> {
        if self.covers.get() {
            return Ok(());
        }
        self.disk.make_directory("empty", 0o755)?;
        self.disk.make_directory("empty/directory", 0o555)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o444);
        rustix::fs::openat(&self.disk.tree, "empty/file", flags, mode).step("make a cover")?;
        self.covers.set(true);
        Ok(())
    }
}

/// The parent of a path, and its last component.
fn split(path: &str) -> (&str, &str) {
    let path = path.trim_matches('/');
    path.rsplit_once('/').unwrap_or(("", path))
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::write(file, bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}
