//! Directories that go with this process. If it is killed, the next one that makes such a directory removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::TempDir;

/// Another process may take a new directory for an abandoned one before it is locked.
const ATTEMPTS: usize = 8;

/// Removed when this is dropped. Its lock, which the kernel lets go of when the process dies, shows others that
/// it is in use.
#[derive(Debug)]
pub(crate) struct OwnDirectory {
    directory: TempDir,
    _lock: File,
}

impl OwnDirectory {
    /// For this user only.
    pub(crate) fn make(prefix: &str) -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir(), prefix)
    }

    /// Those of ended processes with the same prefix are removed on the way.
    pub(crate) fn make_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        sweep(parent, prefix);
        for _ in 0..ATTEMPTS {
            let directory = TempDir::with_prefix_in(prefix, parent)?;
            if let Some(lock) = lock(directory.path())? {
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let named = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes());
        // Held while it is removed.
        if named && let Ok(Some(_lock)) = lock(&entry.path()) {
            // Follows no links.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The lock of a directory of this user. `None` if another process has it, if the directory is gone or is
/// somebody else's, or if there is a link of that name.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let Ok(file) = opened else {
        return Ok(None);
    };
    let of = file.metadata()?;
    if of.uid() != rustix::process::geteuid().as_raw()
        || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
    {
        return Ok(None);
    }
    // It may have been removed by who had the lock before.
    let named = path.symlink_metadata();
    let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (of.dev(), of.ino()));
    Ok(same.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory whose owner was killed: no lock, and nobody who removes it.
    fn left(parent: &Path, name: &str) -> std::path::PathBuf {
        let path = parent.join(name);
        fs::create_dir_all(path.join("empty")).expect("a directory");
        fs::write(path.join("socket"), "").expect("a file");
        path
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next_one() {
        let parent = tempfile::tempdir().expect("a directory");
        let living = OwnDirectory::make_in(parent.path(), "brig-x-").expect("the first");
        fs::write(living.path().join("kept"), "").expect("a file");
        let dead = left(parent.path(), "brig-x-dead");
        let other = left(parent.path(), "brig-y-dead");

        let next = OwnDirectory::make_in(parent.path(), "brig-x-").expect("the next");
        assert!(!dead.exists(), "left behind");
        assert!(other.join("socket").exists(), "another prefix");
        assert!(living.path().join("kept").exists(), "its owner lives");

        let paths = [living.path().to_owned(), next.path().to_owned()];
        drop((living, next));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn no_link_is_followed_and_nothing_of_others_is_touched() {
        let outer = tempfile::tempdir().expect("a directory");
        let parent = outer.path().join("tmp");
        fs::create_dir(&parent).expect("a directory");
        let precious = left(outer.path(), "precious");
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, parent.join(name)).expect("a link");
        };
        link(&precious, "brig-x-link");
        let dead = left(&parent, "brig-x-dead");
        std::os::unix::fs::symlink(&precious, dead.join("link")).expect("a link");
        fs::write(parent.join("brig-x-file"), "").expect("a file");
        let strange = rustix::process::geteuid().is_root().then(|| {
            let strange = left(&parent, "brig-x-strange");
            std::os::unix::fs::chown(&strange, Some(4321), None).expect("chown");
            strange
        });

        drop(OwnDirectory::make_in(&parent, "brig-x-").expect("a directory"));
        assert!(!dead.exists(), "left behind");
        assert!(precious.join("socket").exists() && precious.join("empty").exists());
        assert!(parent.join("brig-x-link").is_symlink() && parent.join("brig-x-file").exists());
        assert!(strange.is_none_or(|path| path.join("socket").exists()));
    }
}
