//! The layers of all sessions. One that nobody refers to any more is removed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::flock::FileLock;
use super::record::{LayerDigest, LayerRef};
use super::{Store, make_folder};
use crate::layers::{link_tree, merge, summarize};
use crate::{Error, Result};

/// While one is held, no layer is removed. What it makes must be referred to before it is dropped.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    store: &'a Store,
    _lock: FileLock,
}

impl Store {
    pub fn pool(&self) -> Result<Pool<'_>> {
        let lock = FileLock::shared(&self.pool_lock()).map_err(failed)?;
        let lock = lock.ok_or_else(|| failed(io::ErrorKind::WouldBlock.into()))?;
        Ok(Pool {
            store: self,
            _lock: lock,
        })
    }

    pub fn layer_path(&self, layer: &LayerRef) -> PathBuf {
        self.root.join("layers").join(layer.digest.as_str())
    }

    fn pool_lock(&self) -> PathBuf {
        self.root.join("layers").join(".lock")
    }

    /// Removes the layers that nobody refers to. Others who are at work come first.
    pub fn collect(&self) -> io::Result<()> {
        let Some(_lock) = FileLock::exclusive(&self.pool_lock())? else {
            return Ok(());
        };
        let used: HashSet<LayerDigest> = match self.referred() {
            Ok(layers) => layers.into_iter().map(|layer| layer.digest).collect(),
            // A record that can't be read may refer to anything.
            Err(_) => return Ok(()),
        };
        for entry in fs::read_dir(self.root.join("layers"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == ".lock" || LayerDigest::try_from(name).is_ok_and(|d| used.contains(&d)) {
                continue;
            }
            self.discard(&entry.path())?;
        }
        Ok(())
    }

    /// Takes something out of sight at once and removes it.
    pub(super) fn discard(&self, path: &Path) -> io::Result<()> {
        let away = self.fresh("trash");
        match fs::rename(path, &away) {
            Ok(()) => fs::remove_dir_all(&away),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Pool<'_> {
    /// A layer of what is in the folder now. The folder itself may change later.
    pub fn freeze(&self, folder: &Path) -> Result<LayerRef> {
        self.add(|fresh| link_tree(folder, fresh))
    }

    /// One layer in place of many.
    pub fn merge(&self, layers: &[LayerRef]) -> Result<LayerRef> {
        let paths: Vec<PathBuf> = layers
            .iter()
            .map(|layer| self.store.layer_path(layer))
            .collect();
        self.add(|fresh| merge(&paths, fresh))
    }

    fn add(&self, fill: impl FnOnce(&Path) -> io::Result<()>) -> Result<LayerRef> {
        let fresh = self
            .store
            .root
            .join("layers")
            .join(format!(".{}", uuid::Uuid::new_v4()));
        let made = self.fill_and_name(&fresh, fill);
        if made.is_err() {
            let _ = fs::remove_dir_all(&fresh);
        }
        made.map_err(failed)
    }

    fn fill_and_name(
        &self,
        fresh: &Path,
        fill: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<LayerRef> {
        make_folder(fresh)?;
        fill(fresh)?;
        let summary = summarize(fresh)?;
        let digest = LayerDigest::try_from(summary.digest).map_err(io::Error::other)?;
        let layer = LayerRef {
            digest,
            bytes: summary.bytes,
        };
        let named = self.store.layer_path(&layer);
        match renameat_with(CWD, fresh, CWD, &named, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(layer),
            Err(Errno::EXIST) => fs::remove_dir_all(fresh).map(|()| layer),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the layers still hold what their names say. The error says what is wrong.
    pub fn verify(&self, layers: &[LayerRef]) -> Result<(), String> {
        for layer in layers {
            let digest = match summarize(&self.store.layer_path(layer)) {
                Ok(summary) => summary.digest,
                Err(error) => return Err(format!("layer {}: {error}", layer.digest)),
            };
            if digest != layer.digest.as_str() {
                return Err(format!("layer {} holds something else", layer.digest));
            }
        }
        Ok(())
    }

    pub fn exist(&self, layers: &[LayerRef]) -> Result<()> {
        for layer in layers {
            self.store.layer_path(layer).metadata().map_err(failed)?;
        }
        Ok(())
    }

    /// Makes sure that what was saved survives the machine.
    pub fn sync(&self) -> Result<()> {
        let folder = fs::File::open(self.store.root.join("layers")).map_err(failed)?;
        rustix::fs::syncfs(folder).map_err(|error| failed(error.into()))
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("saved files", error)
}
