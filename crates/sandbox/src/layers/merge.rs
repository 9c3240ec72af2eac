//! Many layers into one that looks the same.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, open};
use rustix::io::Errno;

use super::MAX_DEPTH;
use super::link::{dress, link};
use super::walk::{Kind, is_opaque, meta_at, names, open_folder, remove, too_deep};

/// Fills the empty folder `to` with the layers, lowest first. Nothing lies below the result, so
/// it needs no marks of what was removed.
pub(crate) fn merge(layers: &[PathBuf], to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let to = open(to, flags, Mode::empty())?;
    for layer in layers {
        apply(&open(layer, flags, Mode::empty())?, &to, 0)?;
    }
    Ok(())
}

fn apply(layer: &OwnedFd, to: &OwnedFd, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    for name in names(layer)? {
        let found = meta_at(layer, &name)?.ok_or(Errno::NOENT)?;
        if found.kind != Kind::Folder {
            remove(to, &name)?;
        }
        match found.kind {
            Kind::Folder => {
                let above = open_folder(layer, &name)?;
                let below = meta_at(to, &name)?.map(|below| below.kind);
                if below != Some(Kind::Folder) || is_opaque(&above)? {
                    remove(to, &name)?;
                    mkdirat(to, &*name, Mode::RWXU)?;
                }
                apply(&above, &open_folder(to, &name)?, depth + 1)?;
            }
            Kind::File | Kind::Link => link(layer, to, &name)?,
            Kind::Whiteout => {}
            Kind::Other => return Err(io::Error::other("neither a file nor a folder nor a link")),
        }
    }
    dress(layer, to, false)
}
