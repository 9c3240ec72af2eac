//! What was found, on disk for the next process. It saves time and nothing else: whatever is wrong
//! with a file, it is as if there were none.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::memory::{Known, Seen};
use super::scan::{Allowed, Denied, Scan};

/// Files that are kept, and bytes of one that are read.
const FILES: usize = 64;
const LARGEST: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Path, rule, name.
    denied: Vec<(PathBuf, String, String)>,
    names: BTreeMap<String, String>,
    allowed: Option<Allowed>,
    seen: Seen,
}

pub(super) fn read(folder: &Path, key: &str) -> Option<Known> {
    own(&fs::symlink_metadata(folder).ok()?)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder.join(key), flags, Mode::empty()).ok()?;
    let file = File::from(file);
    let metadata = file.metadata().ok()?;
    own(&metadata)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return None;
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text).ok()?;
    let stored: Stored = serde_json::from_slice(&text).ok()?;
    let denied = stored.denied.into_iter().map(|(path, rule, name)| {
        let rule = rule.into();
        (path, Denied { rule, name })
    });
    let names = stored.names.into_iter();
    let scan = Scan {
        denied: denied.collect(),
        names: names.map(|(name, rule)| (name, rule.into())).collect(),
        allowed: stored.allowed,
    };
    Some(Known {
        scan: Arc::new(scan),
        seen: stored.seen,
    })
}

/// Nobody else can have written it.
fn own(metadata: &fs::Metadata) -> Option<()> {
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    (ours && metadata.mode() & 0o022 == 0).then_some(())
}

/// Without it, the next process looks again.
pub(super) fn write(folder: &Path, key: &str, known: &Known) {
    let _ = try_write(folder, key, known);
}

fn try_write(folder: &Path, key: &str, known: &Known) -> io::Result<()> {
    let scan = &known.scan;
    let denied = scan.denied.iter().map(|(path, denied)| {
        let (rule, name) = (denied.rule.to_string(), denied.name.clone());
        (path.clone(), rule, name)
    });
    let names = scan.names.iter();
    let stored = Stored {
        denied: denied.collect(),
        names: names
            .map(|(name, rule)| (name.clone(), rule.to_string()))
            .collect(),
        allowed: scan.allowed.clone(),
        seen: known.seen.clone(),
    };
    let text = serde_json::to_vec(&stored)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    make_room(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&text)?;
    file.persist(folder.join(key))?;
    Ok(())
}

/// Lets the oldest go.
fn make_room(folder: &Path) -> io::Result<()> {
    let entries = fs::read_dir(folder)?.flatten();
    let aged =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    let mut files: Vec<_> = aged.collect();
    files.sort();
    let more = (files.len() + 1).saturating_sub(FILES);
    files
        .iter()
        .take(more)
        .try_for_each(|(_, path)| fs::remove_file(path))
}
