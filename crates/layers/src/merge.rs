//! Many layers into one that looks the same.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use brig_linux::directory::open_directory;
use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;

use super::MAX_DEPTH;
use super::link::{dress, link};
use super::walk::{Kind, is_opaque, meta_at, names, remove, too_deep};

/// Fills the empty folder `to` with the layers, lowest first. Nothing lies below the result, so
/// it needs no marks of what was removed.
pub fn merge(layers: &[PathBuf], to: &Path) -> io::Result<()> {
    let to = open_directory(CWD, to)?;
    for layer in layers {
        apply(&open_directory(CWD, layer)?, &to, 0)?;
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
                let above = open_directory(layer, &name)?;
                let below = meta_at(to, &name)?.map(|below| below.kind);
                if below != Some(Kind::Folder) || is_opaque(&above)? {
                    remove(to, &name)?;
                    mkdirat(to, &*name, Mode::RWXU)?;
                }
                apply(&above, &open_directory(to, &name)?, depth + 1)?;
            }
            Kind::File | Kind::Link => link(layer, to, &name)?,
            Kind::Whiteout => {}
            Kind::Other => return Err(io::Error::other("not a file, directory or symbolic link")),
        }
    }
    dress(layer, to, false)
}
