//! The root of the sandbox: one size-capped tmpfs for everything writable, and on it a skeleton
//! that the host's folders are attached to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use brig_linux::mount::{READ_ONLY, set_attributes};
use brig_wire::{Setup, Step as SetupStep};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
};

use super::disk::{Disk, attach_at};
use super::sources::Sources;
use super::{copy, denied, handoff};
use crate::{Failure, Step, proc};

pub fn assemble(
    setup: &Setup,
    mut sources: Sources,
    shim: Option<&OwnedFd>,
    workspace: &str,
    handoff: &OwnedFd,
) -> Result<(), Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("make mounts private")?;
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

/// A root that was given, under a layer of our own. The places for mounts are made in that layer
/// before it is mounted: the root may belong to somebody in whose folders we can make nothing, and
/// whatever it has in their stead, such as a link, is out of the way.
fn given_root(
    disk: &Disk,
    given: OwnedFd,
    setup: &Setup,
    sources: &Sources,
) -> Result<OwnedFd, Failure> {
    disk.make_folder("root", 0o755)?;
    let layer = disk.open_folder("root")?;
    let names = Builder::new(disk, &layer, true);
    let mut sources = sources.iter();
    for step in &setup.steps {
        match step {
            SetupStep::Bind { target, .. } | SetupStep::Device { path: target } => {
                let source = sources
                    .next()
                    .ok_or(rustix::io::Errno::BADF)
                    .step("find a source")?;
                names.place(source, target)?;
            }
            SetupStep::Overlay { lower, target, .. } => {
                sources.by_ref().take(lower.len()).for_each(drop);
                names.folder(target, 0o755)?;
            }
            SetupStep::Copy { target, .. } => {
                sources.next();
                names.folder(target, 0o755)?;
            }
            SetupStep::Private { target, .. } => drop(names.folder(target, 0o755)?),
            SetupStep::Folder { path, mode } => drop(names.folder(path, *mode)?),
            SetupStep::Pts => drop(names.folder("/dev/pts", 0o755)?),
            SetupStep::File { path, .. } => drop(names.file(path)?),
            SetupStep::Symlink { .. } => {}
        }
    }
    names.folder("/proc", 0o755)?;
    if let Some(denied) = &setup.denied {
        names.folder(&denied.folder, 0o755)?;
    }
    disk.hide_lower("root/dev")?;
    disk.overlay("root", vec![given])
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
    let saved = match disk.open_folder("workspace") {
        Ok(private) => Rc::new(private),
        Err(_) => builder.folder(workspace, 0o755)?,
    };
    handoff::send(handoff, b'd', &[disk.tree.as_fd(), saved.as_fd()])
}

pub(super) struct Builder<'a> {
    disk: &'a Disk,
    root: &'a OwnedFd,
    /// Whether the root was given, and so may hold names already.
    given: bool,
    /// Folders that are open already.
    folders: RefCell<HashMap<String, Rc<OwnedFd>>>,
}

impl<'a> Builder<'a> {
    fn new(disk: &'a Disk, root: &'a OwnedFd, given: bool) -> Self {
        Self {
            disk,
            root,
            given,
            folders: RefCell::default(),
        }
    }

    fn step(&self, step: &SetupStep, sources: &mut Sources) -> Result<(), Failure> {
        match step {
            SetupStep::Folder { path, mode } => self.folder(path, *mode).map(drop),
            SetupStep::File { path, content } => {
                write_all(&self.file(path)?, content).step(format!("write {path}"))
            }
            SetupStep::Symlink { path, target } => {
                let (above, name) = split(path);
                match rustix::fs::symlinkat(target, &*self.folder(above, 0o755)?, name) {
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
                self.disk.make_folder(name, 0o755)?;
                let merged = self.disk.overlay(name, lower)?;
                self.attach(&merged, target)
            }
            SetupStep::Copy { name, target, .. } => {
                self.disk.make_folder(name, 0o755)?;
                copy::fill(&next(sources)?, &self.disk.open_folder(name)?)
                    .step("copy the saved files")?;
                self.attach(&self.disk.subtree(name)?, target)
            }
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

    /// Opens a folder below the root, making it and those above it where they are missing. A link
    /// on the way is refused: the root may be a stranger's.
    fn folder(&self, path: &str, mode: u32) -> Result<Rc<OwnedFd>, Failure> {
        let path = path.trim_matches('/');
        if let Some(folder) = self.folders.borrow().get(path) {
            return Ok(Rc::clone(folder));
        }
        let folder = match split(path) {
            (_, "") => self.open(self.root, "."),
            (above, name) => {
                let above = self.folder(above, 0o755)?;
                match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => self.open(&above, name),
                    Err(error) => Err(error),
                }
            }
        };
        let folder = Rc::new(folder.step(format!("make /{path}"))?);
        self.folders
            .borrow_mut()
            .insert(path.to_owned(), Rc::clone(&folder));
        Ok(folder)
    }

    fn open(&self, above: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(above, name, flags, Mode::empty())
    }

    fn file(&self, path: &str) -> Result<OwnedFd, Failure> {
        let (above, name) = split(path);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (above, mode) = (self.folder(above, 0o755)?, Mode::from_raw_mode(0o644));
        rustix::fs::openat(&above, name, flags | OFlags::TRUNC, mode).step(format!("make {path}"))
    }

    /// Makes a folder or a file for a tree to be attached to.
    fn place(&self, tree: &OwnedFd, target: &str) -> Result<(), Failure> {
        let stat = rustix::fs::fstat(tree).step(format!("look at {target}"))?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            self.folder(target, 0o755).map(drop)
        } else {
            self.file(target).map(drop)
        }
    }

    /// Attaches a tree, making the place for it where there is none.
    pub(super) fn attach(&self, tree: &OwnedFd, target: &str) -> Result<(), Failure> {
        self.place(tree, target)?;
        let (above, name) = split(target);
        attach_at(tree, self.folder(above, 0o755)?.as_fd(), name)?;
        // What was opened there before lies under the mount now.
        let path = target.trim_matches('/');
        self.folders.borrow_mut().retain(|known, _| {
            known
                .strip_prefix(path)
                .is_none_or(|rest| !(rest.is_empty() || rest.starts_with('/')))
        });
        Ok(())
    }
}

impl Builder<'_> {
    /// Covers a file by another. What is not there needs no cover.
    pub(super) fn cover(&self, tree: &OwnedFd, path: &str) -> Result<(), Failure> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let inside = path.trim_start_matches('/');
        let found = match rustix::fs::openat2(self.root, inside, flags, Mode::empty(), resolve) {
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

/// The folder of a path, and the name in it.
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
