//! The layers of all sessions. One that nobody refers to any more is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_layers::{link_tree, merge, summarize, usage};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::flock::FileLock;
use super::record::{LayerDigest, LayerRef};
use super::sweep::entries;
use super::{Store, make_directory, remove_tree};
use crate::{Error, Result};

/// While one is held, no layer is removed.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    store: &'a Store,
    _lock: FileLock,
}

/// A change of the layers, or of what refers to them. If it does not come to its end, there may be
/// layers that nobody refers to. A file in `staging/` says so until they are removed, at the latest by
/// the next start.
#[derive(Debug)]
#[must_use = "what is not finished makes the next start look for unused layers"]
pub(crate) struct Change<'a> {
    pool: Pool<'a>,
    mark: PathBuf,
    /// Of the session that is changed.
    session: Option<FileLock>,
}

/// What the names of the files begin with that stand for an unfinished [`Change`].
const UNFINISHED: &str = "unfinished-";
/// What those do who have the lock of the layers: several at a time, or one alone.
pub(super) const CHANGING: &str = "adds or uses saved states";
pub(super) const COLLECTING: &str = "removes saved states that nobody needs";
/// How long a collection waits for others.
const PATIENCE: Duration = Duration::from_secs(2);

impl Store {
    /// To look at layers, or to add a reference to one that has others.
    pub(crate) fn pool(&self) -> Result<Pool<'_>> {
        let lock = FileLock::shared(&self.pool_lock(), COLLECTING).map_err(failed)?;
        Ok(Pool {
            store: self,
            _lock: lock,
        })
    }

    /// To add layers, or to remove references.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        let pool = self.pool()?;
        let name = format!("{UNFINISHED}{}", uuid::Uuid::new_v4().simple());
        let mark = self.root.join("staging").join(name);
        fs::File::create_new(&mark).map_err(failed)?;
        Ok(Change {
            pool,
            mark,
            session: None,
        })
    }

    /// The files of changes that were begun and did not come to their end, or not yet.
    fn unfinished(&self) -> Vec<PathBuf> {
        let mut files = entries(&self.root.join("staging"));
        files.retain(|file| is_unfinished(file));
        files
    }

    /// Removes what changes left that were not finished.
    pub(crate) fn collect_unfinished(&self) {
        if !self.unfinished().is_empty() {
            let _ = self.collect();
        }
    }

    /// Removes what interrupted changes left, unless somebody is at work on layers.
    pub(super) fn collect_interrupted(&self) -> io::Result<()> {
        if self.unfinished().is_empty() {
            return Ok(());
        }
        match FileLock::try_exclusive(&self.pool_lock())? {
            Some(lock) => self.remove_unused(&lock),
            None => Ok(()),
        }
    }

    pub(crate) fn layer_path(&self, layer: &LayerRef) -> PathBuf {
        self.root.join("layers").join(layer.digest.as_str())
    }

    pub(super) fn pool_lock(&self) -> PathBuf {
        self.root.join("layers").join(".lock")
    }

    /// Removes the layers that nobody refers to. Others who are at work come first. Where they take long, the mark of
    /// the change stays, and the next start tries again.
    pub(crate) fn collect(&self) -> io::Result<()> {
        match FileLock::within(&self.pool_lock(), PATIENCE, CHANGING)? {
            Some(lock) => self.remove_unused(&lock),
            None => Ok(()),
        }
    }

    /// Under the lock nobody is within a change: whatever says so is left over, or waits for this.
    fn remove_unused(&self, _lock: &FileLock) -> io::Result<()> {
        let unfinished = self.unfinished();
        let _ = self.remove_all_abandoned();
        // What can't be read may refer to any layer. `doctor` names it, and the next start tries again.
        let Ok(unused) = self.unused() else {
            return Ok(());
        };
        for layer in unused {
            self.discard(&layer)?;
        }
        unfinished.iter().try_for_each(fs::remove_file)
    }

    /// How many layers nobody refers to, and the bytes that they take.
    pub(crate) fn unused_layers(&self) -> io::Result<(usize, u64)> {
        let _lock = FileLock::exclusive(&self.pool_lock(), CHANGING)?;
        let unused = self.unused()?;
        let bytes = unused.iter().map(|layer| usage(layer).unwrap_or(0));
        Ok((unused.len(), bytes.sum()))
    }

    /// To be called under the lock.
    fn unused(&self) -> io::Result<Vec<PathBuf>> {
        let used = self.referred()?;
        let mut unused = Vec::new();
        for entry in fs::read_dir(self.root.join("layers"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != ".lock" && !LayerDigest::try_from(name).is_ok_and(|d| used.contains(&d)) {
                unused.push(entry.path());
            }
        }
        Ok(unused)
    }

    /// Takes something out of sight at once and removes it.
    pub(super) fn discard(&self, path: &Path) -> io::Result<()> {
        let away = self.fresh("trash");
        match fs::rename(path, &away) {
            Ok(()) => remove_tree(&away),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether a file stands for an unfinished [`Change`].
pub(super) fn is_unfinished(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(UNFINISHED))
}

impl Change<'_> {
    /// Of this session: nobody destroys it meanwhile.
    pub(super) fn of_session(mut self, lock: FileLock) -> Self {
        self.session = Some(lock);
        self
    }

    /// Everything that was added is referred to, and no reference was removed.
    pub(crate) fn finish(self) {
        // With its mark, the next start looks for unused layers in vain.
        let _ = fs::remove_file(&self.mark);
    }

    /// Removes the layers that nobody refers to any more. What can't be removed now is removed by the next start.
    pub(crate) fn collect(self) {
        let store = self.pool.store;
        drop((self.pool, self.session));
        let _ = store.collect();
    }

    /// A layer of what is in the directory now. The directory itself may change later.
    pub(crate) fn freeze(&self, directory: &Path) -> Result<LayerRef> {
        self.add(|fresh| link_tree(directory, fresh))
    }

    /// One layer in place of many.
    pub(crate) fn merge(&self, layers: &[LayerRef]) -> Result<LayerRef> {
        let paths: Vec<PathBuf> = layers
            .iter()
            .map(|layer| self.pool.store.layer_path(layer))
            .collect();
        self.add(|fresh| merge(&paths, fresh))
    }

    fn add(&self, fill: impl FnOnce(&Path) -> io::Result<()>) -> Result<LayerRef> {
        let fresh = self
            .pool
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
        make_directory(fresh)?;
        fill(fresh)?;
        let summary = summarize(fresh)?;
        let digest = LayerDigest::try_from(summary.digest).map_err(io::Error::other)?;
        let layer = LayerRef {
            digest,
            bytes: summary.bytes,
            snapshot: None,
        };
        let named = self.pool.store.layer_path(&layer);
        match renameat_with(CWD, fresh, CWD, &named, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(layer),
            Err(Errno::EXIST) => fs::remove_dir_all(fresh).map(|()| layer),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that what was saved survives the machine.
    pub(crate) fn sync(&self) -> Result<()> {
        let layers = self.pool.store.root.join("layers");
        let directory = fs::File::open(layers).map_err(failed)?;
        rustix::fs::syncfs(directory).map_err(|error| failed(error.into()))
    }
}

impl Pool<'_> {
    /// Whether the directories still contain what their digests say. The error says what is wrong.
    /// Snapshots are checked by the backend.
    pub(crate) fn verify(&self, layers: &[LayerRef]) -> Result<(), String> {
        for layer in layers.iter().filter(|layer| layer.snapshot.is_none()) {
            let digest = match summarize(&self.store.layer_path(layer)) {
                Ok(summary) => summary.digest,
                Err(error) => return Err(format!("layer {}: {error}", layer.digest)),
            };
            if digest != layer.digest.as_str() {
                return Err(format!(
                    "the contents of layer {} have changed",
                    layer.digest
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn exist(&self, layers: &[LayerRef]) -> Result<()> {
        for layer in layers {
            let path = match layer.snapshot {
                Some(_) => self.store.snapshot_path(&layer.digest),
                None => self.store.layer_path(layer),
            };
            path.metadata().map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("saved files", error)
}

#[cfg(test)]
mod tests;
