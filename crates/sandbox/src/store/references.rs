//! Which session needs which layer, noted apart from the sessions: a session that was moved aside, or that a backup
//! brings back later, finds its layers again.
//!
//! A note is an empty file `references/<agent>/<session>/<created>/<digest>`. It is there before a record refers to the
//! layer, and goes before its session is destroyed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use super::record::{LayerDigest, LayerRef, SessionRecord};
use super::sweep::{directories, is_missing};
use super::{Store, make_directory};
use crate::{AgentId, SessionId};

const DIRECTORY: &str = "references";

/// A session that nobody destroyed, and that is not where it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub agent: AgentId,
    pub id: SessionId,
    pub layers: Vec<LayerDigest>,
    /// When its layers were noted last.
    pub noted: SystemTime,
    path: PathBuf,
}

impl Store {
    fn references(&self) -> PathBuf {
        self.root.join(DIRECTORY)
    }

    fn notes(&self, record: &SessionRecord) -> PathBuf {
        self.references()
            .join(record.agent.as_str())
            .join(record.id.as_str())
            .join(record.created.as_nanosecond().to_string())
    }

    /// To be called before a record of the session refers to these layers.
    pub(super) fn note(&self, record: &SessionRecord, layers: &[LayerRef]) -> io::Result<()> {
        let notes = self.notes(record);
        for layer in layers {
            let path = notes.join(layer.digest.as_str());
            if !path.exists() {
                make_directory(&notes)?;
                fs::File::create(path)?;
            }
        }
        Ok(())
    }

    /// Of a session that never came to be.
    pub(super) fn forget_staged(&self, record: &SessionRecord) {
        // What stays keeps layers that nobody needs; `missing` names it.
        let _ = remove(&self.notes(record));
    }

    /// To be called before a session is destroyed. Its record says which it is; without one it may be any of that
    /// name.
    pub(super) fn forget(&self, agent: &AgentId, id: &SessionId) -> io::Result<()> {
        let all = self.references().join(agent.as_str()).join(id.as_str());
        match self.read(agent, id) {
            Ok(record) => remove(&self.notes(&record))?,
            Err(_) => remove(&all)?,
        }
        // These fail while there are others, as they should.
        let _ = fs::remove_dir(&all);
        let _ = all.parent().map(fs::remove_dir);
        Ok(())
    }

    /// Makes the notes of a session agree with its records.
    pub(super) fn renew_notes(
        &self,
        record: &SessionRecord,
        layers: &[LayerRef],
    ) -> io::Result<()> {
        self.note(record, layers)?;
        let used: HashSet<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
        let notes = match fs::read_dir(self.notes(record)) {
            Err(error) if is_missing(&error) => return Ok(()),
            notes => notes?,
        };
        for note in notes {
            let note = note?;
            if !note
                .file_name()
                .to_str()
                .is_some_and(|name| used.contains(name))
            {
                fs::remove_file(note.path())?;
            }
        }
        Ok(())
    }

    /// The sessions that have notes and are not there.
    pub(crate) fn missing(&self) -> io::Result<Vec<Missing>> {
        let mut missing = Vec::new();
        for (agent, path) in existing::<AgentId>(&self.references())? {
            for (id, path) in existing::<SessionId>(&path)? {
                let there = match self.read(&agent, &id) {
                    Ok(record) => Some(record.created.as_nanosecond()),
                    Err(error) if is_missing(&error) => None,
                    Err(error) => return Err(error),
                };
                for (created, path) in existing::<i128>(&path)? {
                    let layers = digests(&path)?;
                    if there != Some(created) && !layers.is_empty() {
                        missing.push(Missing {
                            noted: path.metadata()?.modified()?,
                            agent: agent.clone(),
                            id: id.clone(),
                            layers,
                            path,
                        });
                    }
                }
            }
        }
        Ok(missing)
    }
}

impl Missing {
    /// Its layers are needed no more.
    pub(crate) fn forget(&self) -> io::Result<()> {
        remove(&self.path)
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
    for note in fs::read_dir(notes)? {
        let name = note?.file_name().to_string_lossy().into_owned();
        digests.extend(LayerDigest::try_from(name));
    }
    Ok(digests)
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if is_missing(&error) => Ok(()),
        done => done,
    }
}
