//! The stand-in for programs that may not be run: in a folder of its own under their names, and
//! over the files that they are.

use std::os::fd::OwnedFd;

use brig_linux::mount::{NO_DEVICES, NO_SUID, READ_ONLY, set_attributes};
use brig_wire::Denied;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::OpenTreeFlags;

use super::disk::Disk;
use super::root::Builder;
use crate::{Failure, Step};

/// The name of the file itself, in its folder.
const SHIM: &str = ".shim";

pub fn cover(
    denied: &Denied,
    shim: &OwnedFd,
    disk: &Disk,
    builder: &Builder<'_>,
) -> Result<(), Failure> {
    disk.make_folder("denied", 0o755)?;
    let folder = disk.open_folder("denied")?;
    write(&folder, shim).step("write the stand-in for denied programs")?;
    for name in &denied.names {
        rustix::fs::linkat(&folder, SHIM, &folder, &**name, AtFlags::empty())
            .step(format!("name the stand-in {name}"))?;
    }
    let tree = disk.subtree("denied")?;
    set_attributes(&tree, READ_ONLY | NO_SUID | NO_DEVICES, false)
        .step("make the stand-in read-only")?;
    for path in &denied.covered {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let cover = rustix::mount::open_tree(&tree, SHIM, flags).step("clone the stand-in")?;
        builder.cover(&cover, path)?;
    }
    builder.attach(&tree, &denied.folder)
}

/// It can be executed, and not read: there is nothing to copy, and nobody can trace it.
fn write(folder: &OwnedFd, shim: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, SHIM, flags, Mode::from_raw_mode(0o111))?;
    let length = usize::try_from(rustix::fs::fstat(shim)?.st_size).unwrap_or(0);
    let mut at = 0;
    while (at as usize) < length {
        let left = length - at as usize;
        if rustix::fs::sendfile(&file, shim, Some(&mut at), left)? == 0 {
            return Err(rustix::io::Errno::IO);
        }
    }
    Ok(())
}
