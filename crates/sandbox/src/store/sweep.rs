//! Looking over all sessions, and clearing away what a crash left.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Store;
use super::checkpoint::checkpoints_in;
use super::flock::FileLock;
use super::home::{BUSY, LOCK, RECORD, head_path};
use super::owner::OwnerFile;
use super::pool::is_unfinished;
use super::record::{LayerRef, SessionRecord};
use super::snapshots::head_snapshot;
use crate::{AgentId, SessionId};

/// Younger directories without a lock may be about to get one.
const YOUNG: Duration = Duration::from_secs(60);

impl Store {
    /// Names of all sessions. A link leads to something that is not a session.
    pub(crate) fn names(&self) -> io::Result<Vec<(AgentId, SessionId)>> {
        let mut names = Vec::new();
        let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let agents = fs::read_dir(self.root.join("sessions"))?.flatten();
        for agent in agents.filter(is_directory) {
            let Some(name) = parse::<AgentId>(&agent.file_name()) else {
                continue;
            };
            // The directory may go while it is looked at, with the last session in it.
            let Ok(sessions) = fs::read_dir(agent.path()) else {
                continue;
            };
            names.extend(
                sessions
                    .flatten()
                    .filter(is_directory)
                    .filter_map(|session| parse::<SessionId>(&session.file_name()))
                    .map(|id| (name.clone(), id)),
            );
        }
        Ok(names)
    }

    pub(crate) fn read(&self, agent: &AgentId, id: &SessionId) -> io::Result<SessionRecord> {
        SessionRecord::read(&self.session_path(agent, id).join(RECORD))
    }

    pub(crate) fn exists(&self, agent: &AgentId, id: &SessionId) -> bool {
        self.session_path(agent, id).join(RECORD).exists()
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
        let mut last = path.metadata()?.modified()?;
        for entry in entries(&path) {
            let changed = entry.symlink_metadata().and_then(|meta| meta.modified());
            last = last.max(changed.unwrap_or(last));
        }
        Ok(Some(last))
    }

    /// Every layer that a session or a checkpoint needs.
    pub(super) fn referred(&self) -> io::Result<Vec<LayerRef>> {
        let mut layers = Vec::new();
        for (agent, id) in self.names()? {
            match self.layers_of(&self.session_path(&agent, &id)) {
                Ok(found) => layers.extend(found),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(layers)
    }

    pub(super) fn layers_of(&self, session: &Path) -> io::Result<Vec<LayerRef>> {
        let record = SessionRecord::read(&session.join(RECORD))?;
        let mut layers = record.layers;
        if record.snapshots {
            let head = head_snapshot(&head_path(session, record.head))?;
            layers.extend(head.map(LayerRef::of));
        }
        for checkpoint in checkpoints_in(session)? {
            layers.extend(checkpoint.layers);
        }
        Ok(layers)
    }

    /// Clears what nobody will come back for. Never fails: it is tried again at the next start.
    pub(super) fn sweep(&self) {
        for entry in entries(&self.root.join("trash")) {
            let _ = OwnerFile::kill_instance(&entry);
            let _ = fs::remove_dir_all(&entry);
        }
        for entry in entries(&self.root.join("staging")) {
            if !is_unfinished(&entry) && is_abandoned(&entry) {
                let _ = fs::remove_dir_all(&entry);
            }
        }
        let _ = self.collect_interrupted();
    }
}

pub(super) fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

pub(super) fn is_abandoned(directory: &Path) -> bool {
    let lock = directory.join(LOCK);
    if lock.exists() {
        return matches!(FileLock::try_exclusive(&lock), Ok(Some(_)));
    }
    let changed = directory.metadata().and_then(|meta| meta.modified());
    let age = changed
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > YOUNG)
}

fn parse<T: std::str::FromStr>(name: &std::ffi::OsStr) -> Option<T> {
    name.to_str()?.parse().ok()
}
