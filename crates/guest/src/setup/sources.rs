//! Host files and directories, opened before `pivot_root`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use brig_linux::mount::{NO_DEVICES, NO_SUID, READ_ONLY};
use brig_wire::{MountSource, Setup, SetupStep};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;

use crate::{Failure, Step};

/// A detached mount for every source of the steps, in their order.
pub(super) type Sources = VecDeque<OwnedFd>;

/// Takes one of the inherited descriptors.
pub(super) fn take(inherited: &mut [Option<OwnedFd>], index: u32) -> Result<OwnedFd, Failure> {
    inherited
        .get_mut(index as usize)
        .and_then(Option::take)
        .ok_or(io::Error::from(rustix::io::Errno::BADF))
        .step(format!("take inherited descriptor {index}"))
}

pub(super) fn open_all(
    setup: &Setup,
    mut inherited: Vec<Option<OwnedFd>>,
) -> Result<Sources, Failure> {
    let mut open = |source: &MountSource, attributes: u64| -> Result<OwnedFd, Failure> {
        let tree = match source {
            MountSource::Path { path, identity } => open_path(path, *identity)?,
            MountSource::Mount(index) => take(&mut inherited, *index)?,
        };
        brig_linux::mount::restrict(&tree, attributes).step(format!("restrict {source:?}"))?;
        Ok(tree)
    };
    let mut sources = Sources::new();
    if let Some(rootfs) = &setup.rootfs {
        sources.push_back(open(rootfs, READ_ONLY | NO_SUID | NO_DEVICES)?);
    }
    for step in &setup.steps {
        match step {
            SetupStep::Bind {
                source, writable, ..
            } => {
                let read_only = if *writable { 0 } else { READ_ONLY };
                sources.push_back(open(source, read_only | NO_SUID | NO_DEVICES)?);
            }
            SetupStep::Overlay { lower, .. } => {
                for source in lower {
                    sources.push_back(open(source, READ_ONLY | NO_SUID | NO_DEVICES)?);
                }
            }
            SetupStep::Copy { source, .. } => {
                sources.push_back(open(source, READ_ONLY | NO_SUID | NO_DEVICES)?);
            }
            SetupStep::Device { path } => {
                let source = MountSource::Path {
                    path: path.clone(),
                    identity: None,
                };
                sources.push_back(open(&source, NO_SUID | brig_linux::mount::NO_EXEC)?);
            }
            _ => {}
        }
    }
    Ok(sources)
}

/// Opens without following any link, and verifies that it is what the owner has checked.
fn open_path(path: &str, identity: Option<(u64, u64)>) -> Result<OwnedFd, Failure> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)
        .step(format!("open {path}"))?;
    if let Some((device, inode)) = identity {
        let stat = rustix::fs::fstat(&found).step(format!("look at {path}"))?;
        if (stat.st_dev, stat.st_ino) != (device, inode) {
            return Err(io::Error::from(rustix::io::Errno::STALE))
                .step(format!("open {path}: it was replaced after it was checked"));
        }
    }
    let tree = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(&found, "", tree).step(format!("clone {path}"))
}
