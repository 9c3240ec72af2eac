//! The larger files of a session's workspace, in a volume of the engine, so that a new container copies them from
//! there and only the rest is sent to it.
//!
//! The session's files on this machine stay the truth. A note in the session's directory says which of them the
//! volume has, with their digests, and the guest compares these with what it finds. If anything is not as noted,
//! the volume is thrown away, and everything is sent.
//!
//! Containers mount the volume read-only, so nothing in it counts to a limit that code could exceed. Code can read
//! it. So it never has anything that the workspace does not have.

mod note;
mod volume;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use brig_sandbox::Result;
use brig_transfer::{Cached, CachedFile, FileIdentity, content_digest};

use crate::engine::Engine;
use note::Note;
use volume::{Addition, TARGET};

pub(crate) use volume::{mount, sweep};

/// Where it is in a container.
pub(crate) const MOUNTED: &str = TARGET;

/// Smaller files are sent each time, as are all if together they are smaller than a volume is worth.
const LEAST_FILE: u64 = 16 * 1024;
const LEAST_TOTAL: u64 = 4 * 1024 * 1024;
/// A larger one may take the engine longer than a request may take.
const MOST_FILE: u64 = 2 << 30;
const MOST_FILES: usize = 4096;
/// Names that were used in a volume before it is replaced. Those of removed files are empty files.
const MOST_NAMES: u64 = 8 * MOST_FILES as u64;

/// The cache of one session, up to date.
#[derive(Debug)]
pub(crate) struct FileCache {
    session: PathBuf,
    note: Note,
}

impl FileCache {
    /// Brings the cache of a session in line with its files. `None` if it is not worth it, or not possible:
    /// then everything has to be sent. `image`: any that the engine has.
    pub(crate) async fn prepare(engine: &Engine, image: &str, files: &Path) -> Option<Self> {
        let session = files.parent()?.to_owned();
        let found = {
            let (files, session) = (files.to_owned(), session.clone());
            let look = move || (candidates(&files), Note::read(&session));
            tokio::task::spawn_blocking(look).await.ok()?
        };
        let (Ok(candidates), note) = found else {
            return None;
        };
        let total: u64 = candidates.keys().map(FileIdentity::size).sum();
        if total < LEAST_TOTAL {
            if let Some(note) = note {
                discard(engine, &session, &note).await;
            }
            return None;
        }
        let usable = match &note {
            Some(note) if note.is_usable(MOST_NAMES) => {
                volume::exists(engine, &note.volume, &session).await.ok()?
            }
            _ => false,
        };
        let note = match note {
            Some(note) if usable => note,
            Some(note) => {
                discard(engine, &session, &note).await;
                Note::new()
            }
            None => Note::new(),
        };
        let mut cache = Self { session, note };
        match cache.update(engine, image, candidates, !usable).await {
            Ok(()) => Some(cache),
            Err(_) => {
                cache.discard(engine).await;
                None
            }
        }
    }

    async fn update(
        &mut self,
        engine: &Engine,
        image: &str,
        mut candidates: HashMap<FileIdentity, PathBuf>,
        create: bool,
    ) -> Result<()> {
        let note = &mut self.note;
        let (kept, stale): (Vec<_>, Vec<_>) = std::mem::take(&mut note.files)
            .into_iter()
            .partition(|(identity, _)| candidates.contains_key(identity));
        for (identity, _) in &kept {
            candidates.remove(identity);
        }
        note.files = kept;
        if stale.is_empty() && candidates.is_empty() && !create {
            return Ok(());
        }
        // Until this is over, nobody can say what the volume has.
        note.changing = true;
        note.write(&self.session)?;
        if create {
            volume::create(engine, &note.volume, &self.session).await?;
        }
        let mut additions = Vec::new();
        for (_, file) in stale {
            additions.push(Addition::empty(file.number));
        }
        let mut new = Vec::new();
        for (identity, path) in candidates {
            let number = note.next;
            note.next += 1;
            let size = identity.size();
            additions.push(Addition::copy(number, size, path.clone()));
            new.push((identity, path, number));
        }
        let digests = tokio::task::spawn_blocking(move || digests(new));
        volume::add(engine, &note.volume, image, additions).await?;
        let failed = |error| brig_sandbox::Error::io("read the files of the session", error);
        let added = digests
            .await
            .unwrap_or_else(|stopped| Err(io::Error::other(stopped)));
        note.files.extend(added.map_err(failed)?);
        note.changing = false;
        note.write(&self.session)
    }

    pub(crate) fn volume(&self) -> &str {
        &self.note.volume
    }

    /// What a container has of it.
    pub(crate) fn files(&self) -> Cached {
        self.note.files.iter().copied().collect()
    }

    /// A guest has found these files to be as noted; they need not be compared again while they have these times.
    pub(crate) fn checked(&mut self, files: &[(u64, (i64, u32))]) {
        let files: HashMap<u64, (i64, u32)> = files.iter().copied().collect();
        let mut news = false;
        for (_, file) in &mut self.note.files {
            let checked = files.get(&file.number).copied();
            if checked.is_some() && checked != file.checked {
                file.checked = checked;
                news = true;
            }
        }
        if news {
            // Without it, they are compared again.
            let _ = self.note.write(&self.session);
        }
    }

    /// It is not as it should be.
    pub(crate) async fn discard(self, engine: &Engine) {
        discard(engine, &self.session, &self.note).await;
    }
}

/// Removes the cache of a session that is about to be removed.
pub(crate) async fn forget(engine: &Engine, session: &Path) {
    if let Some(note) = Note::read(session) {
        discard(engine, session, &note).await;
    }
}

/// A volume that can't be removed now is one that no note names: the next sweep removes it.
async fn discard(engine: &Engine, session: &Path, note: &Note) {
    Note::remove(session);
    let _ = volume::remove(engine, &note.volume).await;
}

/// The files that belong into the cache, and where they are.
fn candidates(files: &Path) -> io::Result<HashMap<FileIdentity, PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![files.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file()
                && (LEAST_FILE..=MOST_FILE).contains(&entry.metadata()?.len())
                && let Some(identity) = FileIdentity::of(File::open(entry.path())?)?
            {
                found.push((identity, entry.path()));
            }
        }
    }
    found.sort_by_key(|(identity, _)| std::cmp::Reverse(identity.size()));
    found.truncate(MOST_FILES);
    Ok(found.into_iter().collect())
}

fn digests(
    files: Vec<(FileIdentity, PathBuf, u64)>,
) -> io::Result<Vec<(FileIdentity, CachedFile)>> {
    let digest = |(identity, path, number)| {
        let file = CachedFile {
            number,
            digest: content_digest(&File::open(path)?)?,
            checked: None,
        };
        Ok((identity, file))
    };
    files.into_iter().map(digest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_files_without_holes_belong_into_it() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("below")).expect("folder");
        std::fs::write(at("small"), "a").expect("write");
        std::fs::write(at("large"), vec![1; 20_000]).expect("write");
        std::fs::write(at("below/large"), vec![1; 20_000]).expect("write");
        std::fs::hard_link(at("large"), at("link")).expect("link");
        std::os::unix::fs::symlink("large", at("symbolic")).expect("link");
        let holes = File::create(at("holes")).expect("create");
        holes.set_len(1 << 20).expect("length");
        let found = candidates(folder.path()).expect("found");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found
                .values()
                .all(|path| path != &at("holes") && path != &at("small"))
        );
    }

    #[test]
    fn a_file_that_was_replaced_is_another() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        let write = |byte: u8| {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, vec![byte; 20_000]).expect("write");
            let file = File::options().write(true).open(&path).expect("open");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .expect("time");
            FileIdentity::of(file).expect("found").expect("an identity")
        };
        // The same name, size and time, and perhaps the same inode.
        assert_ne!(write(1), write(2));
        let again = || FileIdentity::of(File::open(&path).expect("open")).expect("found");
        let before = again();
        std::fs::hard_link(&path, folder.path().join("link")).expect("link");
        assert_eq!(before, again());
    }
}
