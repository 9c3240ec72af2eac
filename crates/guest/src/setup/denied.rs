//! Puts the stand-in in place of denied programs: in a directory of its own under their names, and
//! over their files.

use std::os::fd::OwnedFd;

use brig_linux::mount::{NO_DEVICES, NO_SUID, READ_ONLY, set_attributes};
use brig_wire::DeniedPrograms;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::disk::Disk;
use super::root::Builder;
use crate::{Failure, Step};

/// The name of the stand-in itself, in its directory.
const SHIM: &str = ".shim";

pub(super) fn cover(
    denied: &DeniedPrograms,
    shim: &OwnedFd,
    disk: &Disk,
    builder: &Builder<'_>,
) -> Result<(), Failure> {
    disk.make_directory("denied", 0o755)?;
    let directory = disk.open_directory("denied")?;
    write(&directory, shim).step("write the stand-in for denied programs")?;
    for name in &denied.names {
        rustix::fs::linkat(&directory, SHIM, &directory, &**name, AtFlags::empty())
            .step(format!("name the stand-in {name}"))?;
    }
    let tree = disk.subtree("denied")?;
    set_attributes(&tree, READ_ONLY | NO_SUID | NO_DEVICES, false)
        .step("make the stand-in read-only")?;
    for path in &denied.covered {
        // From an attached mount: before Linux 6.15, a detached one can't be cloned.
        let cover = disk.subtree(&format!("denied/{SHIM}"))?;
        set_attributes(&cover, READ_ONLY | NO_SUID | NO_DEVICES, false)
            .step("make the stand-in read-only")?;
        builder.cover(&cover, path)?;
    }
    builder.attach(&tree, &denied.directory)
}

/// Executable but not readable, so that it can't be copied or traced.
fn write(directory: &OwnedFd, shim: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, SHIM, flags, Mode::from_raw_mode(0o111))?;
    let length = u64::try_from(rustix::fs::fstat(shim)?.st_size).unwrap_or(0);
    let mut at = 0;
    while at < length {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        if rustix::fs::sendfile(&file, shim, Some(&mut at), left)? == 0 {
            return Err(rustix::io::Errno::IO);
        }
    }
    Ok(())
}
