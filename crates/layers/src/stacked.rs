//! How much of a stack of layers can be seen.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use brig_linux::directory::open_directory;
use rustix::fs::CWD;

use super::MAX_DEPTH;
use super::digest::weight;
use super::walk::{Kind, is_opaque, meta_at, names, too_deep};

/// What the files of the layers take that no layer above replaced or removed. Lowest first.
pub fn stacked(layers: &[PathBuf]) -> io::Result<u64> {
    let mut folders = Vec::new();
    for layer in layers.iter().rev() {
        folders.push(open_directory(CWD, layer)?);
    }
    below(&folders, &mut HashSet::new(), 0)
}

/// Of one folder, as it is in each layer, highest first.
fn below(folders: &[OwnedFd], counted: &mut HashSet<u64>, depth: usize) -> io::Result<u64> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    let mut bytes = 0;
    let mut seen = HashSet::new();
    for (index, folder) in folders.iter().enumerate() {
        for name in names(folder)? {
            if seen.contains(&name) {
                continue;
            }
            let Some(found) = meta_at(folder, &name)? else {
                continue;
            };
            match found.kind {
                Kind::Folder => {
                    let mut inside = Vec::new();
                    for lower in &folders[index..] {
                        match meta_at(lower, &name)?.map(|found| found.kind) {
                            Some(Kind::Folder) => inside.push(open_directory(lower, &name)?),
                            Some(_) => break,
                            None => continue,
                        }
                        if inside
                            .last()
                            .is_some_and(|last| is_opaque(last).unwrap_or(false))
                        {
                            break;
                        }
                    }
                    bytes += weight(&found) + below(&inside, counted, depth + 1)?;
                }
                Kind::File if found.links < 2 || counted.insert(found.inode) => {
                    bytes += weight(&found);
                }
                Kind::Link | Kind::Other => bytes += weight(&found),
                Kind::File | Kind::Whiteout => {}
            }
            seen.insert(name);
        }
    }
    Ok(bytes)
}
