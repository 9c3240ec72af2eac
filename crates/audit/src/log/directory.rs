//! The files of a log.
//!
//! `NNN.jsonl` the records, in segments named by their first record; `head` the newest signed
//! head; `key` and `key.pub`; `nodes` the tree, which can be made again from the records; `pruned`
//! the summary of pruned records; `verified` what was verified before; `lock`.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::error::{LogError, Result};

/// How long others may lock the log. They lock it for microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most that is read of a head or a key: a log may come from an attacker.
pub(crate) const SMALL: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct LogDirectory {
    path: PathBuf,
    lock: Option<Arc<File>>,
}

impl LogDirectory {
    /// Makes the directory if need be.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(LogError::io("create", path))?;
        let lock = path.join("lock");
        let file = new_file()
            .open(&lock)
            .map_err(LogError::io("open", &lock))?;
        Ok(Self {
            path: path.to_owned(),
            lock: Some(Arc::new(file)),
        })
    }

    /// To read what is there, also where nothing can be written.
    pub(crate) fn read_only(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Err(LogError::NoLog(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            lock: brig_input::open_unlinked(path.join("lock"))
                .ok()
                .map(Arc::new),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn segment(&self, start: u64) -> PathBuf {
        self.path.join(format!("{start:020}.jsonl"))
    }

    /// The first records of the segments, in order.
    pub(crate) fn segments(&self) -> Result<Vec<u64>> {
        Ok(self.list("")?.0)
    }

    /// The same, and whether a file with this name is there: that costs less than to look for it.
    pub(crate) fn list(&self, file: &str) -> Result<(Vec<u64>, bool)> {
        let wrong = || LogError::io("list", &self.path);
        let (mut starts, mut found) = (Vec::new(), false);
        for entry in fs::read_dir(&self.path).map_err(wrong())? {
            let name = entry.map_err(wrong())?.file_name();
            found |= name == file;
            let digits = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            let whole = digits.filter(|d| d.len() == 20 && d.bytes().all(|b| b.is_ascii_digit()));
            starts.extend(whole.and_then(|digits| digits.parse::<u64>().ok()));
        }
        starts.sort_unstable();
        Ok((starts, found))
    }

    /// Removes the segments that end before a record, the oldest first.
    pub(crate) fn remove_before(&self, record: u64) -> Result<()> {
        for start in self.segments()?.into_iter().filter(|start| *start < record) {
            let path = self.segment(start);
            fs::remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
        Ok(())
    }

    /// A small file, if it is there.
    pub(crate) fn read_text(&self, name: &str) -> Result<Option<String>> {
        let path = self.file(name);
        match brig_input::read(&path, SMALL) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LogError::io("read", &path)(error)),
        }
    }

    pub(crate) fn lock(&self) -> Result<Guard> {
        self.acquire(File::try_lock)
    }

    pub(crate) fn lock_shared(&self) -> Result<Guard> {
        self.acquire(File::try_lock_shared)
    }

    fn acquire(
        &self,
        attempt: fn(&File) -> std::result::Result<(), TryLockError>,
    ) -> Result<Guard> {
        let Some(file) = &self.lock else {
            return Ok(Guard(None));
        };
        let mut pause = Duration::from_micros(20);
        let mut waiting: Option<Instant> = None;
        loop {
            match attempt(file) {
                Ok(()) => return Ok(Guard(Some(file.clone()))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(LogError::io("lock", &self.file("lock"))(error));
                }
            }
            if waiting.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(LogError::Busy);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Makes the names in the directory safe.
    pub(crate) fn sync(&self) -> Result<()> {
        let wrong = || LogError::io("sync", &self.path);
        let directory = File::open(&self.path).map_err(wrong())?;
        directory.sync_all().map_err(wrong())
    }

    /// Replaces a file as a whole: either the old or the new one is there after a crash.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (path, temporary) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || -> io::Result<()> {
            let mut file = new_file().truncate(true).open(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(LogError::io("write", &path))?;
        self.sync()
    }
}

/// For reading and writing, readable only by its owner.
pub(crate) fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

/// The right to write, or to read what does not change meanwhile.
#[derive(Debug)]
#[must_use]
pub(crate) struct Guard(Option<Arc<File>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Explicitly: a process that was started meanwhile may share the open file.
            let _ = file.unlock();
        }
    }
}
