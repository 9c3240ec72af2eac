//! Looking over all sessions, and clearing away what a crash left.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use super::checkpoint::checkpoints_in;
use super::flock::FileLock;
use super::home::{
    BUSY, CHANGE, CHECKPOINTS, LOCK, RECORD, head_path, is_abandoned, take_abandoned,
};
use super::owner::OwnerFile;
use super::pool::is_unfinished;
use super::record::{LayerDigest, LayerRef, SessionRecord};
use super::snapshots::head_snapshot;
use super::{SESSION_IN_TRASH, Store, remove_tree};
use crate::{AgentId, SessionId};

/// The layers that a session and its checkpoints need.
#[derive(Debug)]
pub(super) struct Needs {
    pub record: SessionRecord,
    pub layers: Vec<LayerRef>,
    /// Whether all of it is there: a directory of checkpoints that is missing may come back.
    pub whole: bool,
}

/// The sessions that can be seen, and what can't be read of them.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub names: Vec<(AgentId, SessionId)>,
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

impl Store {
    /// All sessions that can be seen. What can't be read is named beside them.
    pub(crate) fn listing(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for (agent, path) in directories::<AgentId>(&self.root.join("sessions"))? {
            match directories::<SessionId>(&path) {
                Ok(sessions) => {
                    let there = sessions.into_iter().filter(|(_, path)| !is_abandoned(path));
                    let named = there.map(|(id, _)| (agent.clone(), id));
                    listing.names.extend(named);
                }
                // It went with the last session in it.
                Err(error) if is_missing(&error) => {}
                Err(error) => listing.unreadable.push((path, error)),
            }
        }
        Ok(listing)
    }

    /// All sessions, or an error if there may be others.
    pub(crate) fn names(&self) -> io::Result<Vec<(AgentId, SessionId)>> {
        let mut listing = self.listing()?;
        match listing.unreadable.pop() {
            Some((path, error)) => Err(at(&path, error)),
            None => Ok(listing.names),
        }
    }

    pub(crate) fn read(&self, agent: &AgentId, id: &SessionId) -> io::Result<SessionRecord> {
        SessionRecord::read(&self.session_path(agent, id).join(RECORD))
    }

    /// What can't be seen may be there.
    pub(crate) fn exists(&self, agent: &AgentId, id: &SessionId) -> bool {
        let path = self.session_path(agent, id);
        let record = path.join(RECORD).symlink_metadata();
        !record.is_err_and(|error| is_missing(&error)) && !is_abandoned(&path)
    }

    /// Whether something runs in a session that another process has open.
    pub(crate) fn is_busy(&self, agent: &AgentId, id: &SessionId) -> bool {
        let path = self.session_path(agent, id).join(BUSY);
        path.exists() && matches!(FileLock::try_shared(&path), Ok(None))
    }

    /// When a session was last opened or changed; `None` while a process has it open.
    pub(crate) fn last_used(
        &self,
        agent: &AgentId,
        id: &SessionId,
    ) -> io::Result<Option<SystemTime>> {
        let path = self.session_path(agent, id);
        let lock = path.join(LOCK);
        if lock.exists() && matches!(FileLock::try_exclusive(&lock), Ok(None)) {
            return Ok(None);
        }
        Ok(Some(path.metadata()?.modified()?.max(newest_inside(&path))))
    }

    /// Every layer that a session or a checkpoint needs, or needed when its session was last seen. An error if anything
    /// can't be read, because it may need any layer. To be called under the lock of the layers.
    pub(super) fn referred(&self) -> io::Result<HashSet<LayerDigest>> {
        let mut layers = HashSet::new();
        for (agent, id) in self.names()? {
            let path = self.session_path(&agent, &id);
            match self.needs_of(&path) {
                Ok(needs) => {
                    self.renew_notes(&agent, &id, &needs)?;
                    layers.extend(needs.layers.into_iter().map(|layer| layer.digest));
                }
                // Only one that went as a whole needs nothing.
                Err(_)
                    if path
                        .symlink_metadata()
                        .is_err_and(|error| is_missing(&error)) => {}
                Err(error) => return Err(at(&path, error)),
            }
        }
        // Of sessions that were not seen above, whether they are there by now or not.
        layers.extend(self.noted()?);
        Ok(layers)
    }

    /// What can't be read of the sessions, and so keeps unused layers from being removed.
    pub(crate) fn unreadable(&self) -> io::Result<Vec<(PathBuf, io::Error)>> {
        let mut listing = self.listing()?;
        for (agent, id) in &listing.names {
            let path = self.session_path(agent, id);
            match self.needs_of(&path) {
                Err(error) if path.exists() => listing.unreadable.push((path, error)),
                _ => {}
            }
        }
        Ok(listing.unreadable)
    }

    /// What a session and its checkpoints need.
    fn needs_of(&self, session: &Path) -> io::Result<Needs> {
        let record = SessionRecord::read(&session.join(RECORD))?;
        let mut layers = record.layers.clone();
        if record.snapshots {
            let head = head_snapshot(&head_path(session, record.head))?;
            layers.extend(head.map(LayerRef::of));
        }
        let whole = session.join(CHECKPOINTS).symlink_metadata().is_ok();
        for checkpoint in checkpoints_in(session)? {
            layers.extend(checkpoint.layers);
        }
        Ok(Needs {
            record,
            layers,
            whole,
        })
    }

    pub(super) fn layers_of(&self, session: &Path) -> io::Result<Vec<LayerRef>> {
        self.needs_of(session).map(|needs| needs.layers)
    }

    /// Clears what nobody will come back for. Never fails: it is tried again at the next start.
    pub(super) fn sweep(&self) {
        for entry in entries(&self.root.join("trash")) {
            let name = entry.file_name().map(|name| name.to_string_lossy());
            if name.is_some_and(|name| name.starts_with(SESSION_IN_TRASH)) {
                let _ = OwnerFile::kill_instance(&entry);
                if let Ok(record) = SessionRecord::read(&entry.join(RECORD)) {
                    self.forget_record(&record);
                }
            }
            let _ = remove_tree(&entry);
        }
        self.sweep_staging();
        let _ = self.collect_interrupted();
    }
}

impl Store {
    /// Removes the directories of sessions that never came to be. Under the lock nobody is about to lock a new one:
    /// [`Store::create`] holds it until then.
    fn sweep_staging(&self) {
        let mut staged = entries(&self.root.join("staging"));
        staged.retain(|entry| !is_unfinished(entry));
        if staged.is_empty() {
            return;
        }
        let Ok(Some(_lock)) = FileLock::try_exclusive(&self.pool_lock()) else {
            return;
        };
        for entry in staged {
            if let Ok(Some(_own)) = FileLock::try_exclusive(&entry.join(LOCK)) {
                if let Ok(record) = SessionRecord::read(&entry.join(RECORD)) {
                    self.forget_record(&record);
                }
                let _ = remove_tree(&entry);
            }
        }
    }
}

impl Store {
    /// Removes what is left of sessions that were never created, once their names were taken.
    pub(super) fn remove_all_abandoned(&self) -> io::Result<()> {
        for (agent, path) in directories::<AgentId>(&self.root.join("sessions"))? {
            for (id, _) in directories::<SessionId>(&path)? {
                self.remove_abandoned(&agent, &id)?;
            }
        }
        Ok(())
    }

    /// The same for one name.
    pub(super) fn remove_abandoned(&self, agent: &AgentId, id: &SessionId) -> io::Result<()> {
        let path = self.session_path(agent, id);
        // Held until it has no name.
        let Some(_own) = take_abandoned(&path) else {
            return Ok(());
        };
        if let Ok(record) = self.read(agent, id) {
            self.forget_record(&record);
        }
        self.discard(&path)
    }
}

/// The time of the last change of what is in the directory of a session, but for the lock of those who remove it.
pub(super) fn newest_inside(session: &Path) -> SystemTime {
    let files = entries(session)
        .into_iter()
        .filter(|path| !path.ends_with(CHANGE));
    let changed = files.filter_map(|path| path.symlink_metadata().ok()?.modified().ok());
    changed.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(super) fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Whether there is nothing, rather than something that can't be read.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The directories in a directory whose names are of a kind. A link leads to something else.
pub(super) fn directories<T: FromStr>(parent: &Path) -> io::Result<Vec<(T, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let Some(name) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.push((name, entry.path())),
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// An error that names the file.
pub(super) fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
