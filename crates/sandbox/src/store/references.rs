//! Which session needs which layer, noted apart from the sessions: a session that was moved aside, or that a backup
//! brings back later, finds its layers again.
//!
//! A note is an empty file `references/<agent>/<session>/<created>/<digest>`. It is there before a record refers to the
//! layer, and goes when its session has been destroyed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use jiff::Timestamp;

use super::record::{LayerDigest, LayerRef, SessionRecord};
use super::sweep::{Needs, directories, is_missing};
use super::{REFERENCES, Store, make_directory};
use crate::{AgentId, SessionId};

/// A session that nobody destroyed, and that is not where it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub agent: AgentId,
    pub id: SessionId,
    pub layers: Vec<LayerDigest>,
    /// When it was last seen, or its layers were noted.
    pub seen: SystemTime,
    path: PathBuf,
}

impl Store {
    fn references(&self) -> PathBuf {
        self.root.join(REFERENCES)
    }

    fn notes(&self, agent: &AgentId, id: &SessionId, created: Timestamp) -> PathBuf {
        let session = self.references().join(agent.as_str()).join(id.as_str());
        session.join(created.as_nanosecond().to_string())
    }

    /// To be called before a record of the session refers to these layers.
    pub(super) fn note(&self, record: &SessionRecord, layers: &[LayerRef]) -> io::Result<()> {
        note(
            &self.notes(&record.agent, &record.id, record.created),
            layers,
        )
    }

    /// What is left of a session that never came to be, or that was destroyed. Notes that stay keep layers that nobody
    /// needs, and [`Store::missing`] lists them.
    pub(super) fn forget_record(&self, record: &SessionRecord) {
        self.forget(&record.agent, &record.id, record);
    }

    /// The same of a session by its name, which is another one in the record of a copy.
    pub(super) fn forget(&self, agent: &AgentId, id: &SessionId, record: &SessionRecord) {
        let _ = forget(&self.notes(agent, id, record.created));
    }

    /// The session is in use. If that can't be noted, only `missing` shows an older time.
    pub(super) fn seen(&self, record: &SessionRecord) {
        see(&self.notes(&record.agent, &record.id, record.created));
    }

    /// Makes the notes of a session agree with its records. Shows also when it was last seen.
    pub(super) fn renew_notes(
        &self,
        agent: &AgentId,
        id: &SessionId,
        needs: &Needs,
    ) -> io::Result<()> {
        let notes = self.notes(agent, id, needs.record.created);
        note(&notes, &needs.layers)?;
        let used = needs.layers.iter().map(|layer| layer.digest.as_str());
        let used: HashSet<&str> = used.collect();
        let entries = match fs::read_dir(&notes) {
            Err(error) if is_missing(&error) => return Ok(()),
            entries => entries?,
        };
        see(&notes);
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if needs.whole && !name.to_str().is_some_and(|name| used.contains(name)) {
                // One that stays keeps a layer that nobody needs.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Every layer that is noted.
    pub(super) fn noted(&self) -> io::Result<HashSet<LayerDigest>> {
        let mut layers = HashSet::new();
        for notes in self.all_notes()? {
            layers.extend(digests(&notes.path)?);
        }
        Ok(layers)
    }

    fn all_notes(&self) -> io::Result<Vec<Notes>> {
        let mut all = Vec::new();
        for (agent, path) in existing::<AgentId>(&self.references())? {
            for (id, path) in existing::<SessionId>(&path)? {
                for (created, path) in existing::<i128>(&path)? {
                    all.push(Notes {
                        agent: agent.clone(),
                        id: id.clone(),
                        created,
                        path,
                    });
                }
            }
        }
        Ok(all)
    }

    /// The sessions that have notes and are not there.
    pub(crate) fn missing(&self) -> io::Result<Vec<Missing>> {
        let mut missing = Vec::new();
        for notes in self.all_notes()? {
            let there = match self.read(&notes.agent, &notes.id) {
                Ok(record) => Some(record.created.as_nanosecond()),
                Err(error) if is_missing(&error) => None,
                // It is there, and named among what can't be read.
                Err(_) => continue,
            };
            let layers = digests(&notes.path)?;
            if there == Some(notes.created) || layers.is_empty() {
                continue;
            }
            let Ok(seen) = notes.path.metadata().and_then(|found| found.modified()) else {
                continue;
            };
            missing.push(Missing {
                agent: notes.agent,
                id: notes.id,
                layers,
                seen,
                path: notes.path,
            });
        }
        Ok(missing)
    }
}

/// The directory with the notes of one session.
#[derive(Debug)]
struct Notes {
    agent: AgentId,
    id: SessionId,
    created: i128,
    path: PathBuf,
}

fn see(notes: &Path) {
    let now = SystemTime::now();
    let _ = fs::File::open(notes).and_then(|notes| notes.set_modified(now));
}

fn note(notes: &Path, layers: &[LayerRef]) -> io::Result<()> {
    for layer in layers {
        let path = notes.join(layer.digest.as_str());
        if !path.exists() {
            make_directory(notes)?;
            fs::File::create(path)?;
        }
    }
    Ok(())
}

impl Missing {
    /// Its layers are needed no more.
    pub(crate) fn forget(&self) -> io::Result<()> {
        forget(&self.path)
    }
}

fn existing<T: FromStr>(parent: &Path) -> io::Result<Vec<(T, PathBuf)>> {
    match directories(parent) {
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        found => found,
    }
}

fn digests(notes: &Path) -> io::Result<Vec<LayerDigest>> {
    let mut digests = Vec::new();
    let entries = match fs::read_dir(notes) {
        Err(error) if is_missing(&error) => return Ok(digests),
        entries => entries?,
    };
    for note in entries {
        let name = note?.file_name().to_string_lossy().into_owned();
        digests.extend(LayerDigest::try_from(name));
    }
    Ok(digests)
}

/// Removes notes, and the directories above them that are empty then.
fn forget(notes: &Path) -> io::Result<()> {
    match fs::remove_dir_all(notes) {
        Err(error) if is_missing(&error) => {}
        removed => removed?,
    }
    for above in notes.ancestors().skip(1).take(2) {
        // Fails while there are others, as it should.
        if fs::remove_dir(above).is_err() {
            break;
        }
    }
    Ok(())
}
