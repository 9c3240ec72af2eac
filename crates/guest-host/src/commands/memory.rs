//! What was found is remembered. It counts only while every folder of programs is as it was, and
//! every path that was followed leads to the same file as before: also one behind links, and one
//! that got another name.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use brig_policy::Commands;
use rustix::fs::{AtFlags, Stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::root::Root;
use super::scan::Scan;
use super::{disk, multicall};

/// Changes when a look finds something else in the same root.
const VERSION: u32 = 1;
/// Roots and policies that are remembered.
const REMEMBERED: usize = 64;
/// What changed just now can change again without a new time.
const SETTLED: i64 = 2;

/// Paths that were followed, and what they led to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen(BTreeMap<PathBuf, Option<(PathBuf, Stamp)>>);

/// Another file, another content or another name of the same file make another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    links: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            #[allow(clippy::unnecessary_cast, reason = "narrower on some machines")]
            links: stat.st_nlink as u64,
            #[allow(
                clippy::unnecessary_cast,
                clippy::cast_possible_wrap,
                reason = "narrower on some machines; nanoseconds are below a billion"
            )]
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

impl Seen {
    pub(super) fn note(&mut self, path: &Path, found: Option<&(PathBuf, Stat)>) {
        let found = found.map(|(real, stat)| (real.clone(), Stamp::of(stat)));
        self.0.insert(path.to_owned(), found);
    }

    fn still_true(&self, root: &Root) -> bool {
        let mut seen = self.0.iter();
        seen.all(|(path, before)| {
            if let Some((real, stamp)) = before
                && real == path
                && let Some(now) = in_folder(root, path)
            {
                return now == *stamp;
            }
            let now = root.file(path);
            now.map(|(real, stat)| (real, Stamp::of(&stat))) == *before
        })
    }

    fn settled(&self, root: &Root, now: i64) -> bool {
        let folders = root.folders.iter().map(|folder| &folder.stat);
        #[allow(clippy::unnecessary_cast, reason = "narrower on some machines")]
        let folders = folders.map(|stat| (stat.st_mtime as i64).max(stat.st_ctime as i64));
        let files = self.0.values().flatten().map(|(_, stamp)| stamp.changed.0);
        folders.chain(files).all(|changed| changed < now - SETTLED)
    }
}

/// A file in a folder of programs, without following anything.
fn in_folder(root: &Root, path: &Path) -> Option<Stamp> {
    let (above, name) = (path.parent()?, path.file_name()?);
    let folder = root.folders.iter().find(|folder| folder.path == above)?;
    let stat = rustix::fs::statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Stamp::of(&stat))
}

/// What was found, and by what that is known.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub scan: Arc<Scan>,
    pub seen: Seen,
}

static KNOWN: Mutex<Option<HashMap<String, Known>>> = Mutex::new(None);

pub(super) fn recall(
    commands: &Commands,
    root: &Root,
    look: impl FnOnce() -> (Scan, Seen),
) -> Arc<Scan> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(0));
    recall_at(now, commands, root, look)
}

/// `now`: seconds since 1970.
pub(super) fn recall_at(
    now: i64,
    commands: &Commands,
    root: &Root,
    look: impl FnOnce() -> (Scan, Seen),
) -> Arc<Scan> {
    let key = key(commands, root);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().as_ref().and_then(|known| known.get(&key)).cloned();
    if let Some(known) = known.filter(|known| known.seen.still_true(root)) {
        return known.scan;
    }
    let kept = root.kept_in.as_deref();
    let read = kept.and_then(|folder| disk::read(folder, &key));
    let known = match read.filter(|known| known.seen.still_true(root)) {
        Some(known) => known,
        None => {
            let (scan, seen) = look();
            let known = Known {
                scan: Arc::new(scan),
                seen,
            };
            if !known.seen.settled(root, now) {
                return known.scan;
            }
            if let Some(folder) = kept {
                disk::write(folder, &key, &known);
            }
            known
        }
    };
    let scan = Arc::clone(&known.scan);
    let mut all = lock();
    let all = all.get_or_insert_default();
    if all.len() >= REMEMBERED {
        all.clear();
    }
    all.insert(key, known);
    scan
}

#[cfg(test)]
pub(super) fn forget() {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Stands for everything that a look depends on, but for the files.
fn key(commands: &Commands, root: &Root) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{VERSION} {} ", env!("CARGO_PKG_VERSION")));
    hash.update(multicall::LISTS);
    hash.update(format!("{commands:?} {}", root.identity()));
    let hash = hash.finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
