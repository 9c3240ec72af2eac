//! Looking over all sessions, and clearing away what a crash left.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Store;
use super::atomic::read_json;
use super::checkpoint::checkpoints_in;
use super::flock::FileLock;
use super::home::{BUSY, LOCK, RECORD};
use super::owner::Owner;
use super::record::{LayerRef, SessionRecord};
use crate::{AgentId, SessionId};

/// Younger folders without a lock may be about to get one.
const YOUNG: Duration = Duration::from_secs(60);

impl Store {
    /// Names of all sessions.
    pub fn names(&self) -> io::Result<Vec<(AgentId, SessionId)>> {
        let mut names = Vec::new();
        for agent in fs::read_dir(self.root.join("sessions"))?.flatten() {
            let Some(name) = parse::<AgentId>(&agent.file_name()) else {
                continue;
            };
            // The folder may go while it is looked at, with the last session in it.
            let Ok(sessions) = fs::read_dir(agent.path()) else {
                continue;
            };
            names.extend(
                sessions
                    .flatten()
                    .filter_map(|session| parse::<SessionId>(&session.file_name()))
                    .map(|id| (name.clone(), id)),
            );
        }
        Ok(names)
    }

    pub fn read(&self, agent: &AgentId, id: &SessionId) -> io::Result<SessionRecord> {
        read_json(&self.session_path(agent, id).join(RECORD))
    }

    pub fn exists(&self, agent: &AgentId, id: &SessionId) -> bool {
        self.session_path(agent, id).join(RECORD).exists()
    }

    /// Whether something runs in a session that another process has open.
    pub fn is_busy(&self, agent: &AgentId, id: &SessionId) -> bool {
        let path = self.session_path(agent, id).join(BUSY);
        path.exists() && matches!(FileLock::try_shared(&path), Ok(None))
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
        let mut layers = read_json::<SessionRecord>(&session.join(RECORD))?.layers;
        for checkpoint in checkpoints_in(session)? {
            layers.extend(checkpoint.layers);
        }
        Ok(layers)
    }

    /// Clears what nobody will come back for. Never fails: it is tried again at the next start.
    pub(super) fn sweep(&self) {
        for entry in entries(&self.root.join("trash")) {
            let _ = Owner::kill_instance(&entry);
            let _ = fs::remove_dir_all(&entry);
        }
        for entry in entries(&self.root.join("staging")) {
            if is_abandoned(&entry) {
                let _ = fs::remove_dir_all(&entry);
            }
        }
    }
}

pub(super) fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

pub(super) fn is_abandoned(folder: &Path) -> bool {
    let lock = folder.join(LOCK);
    if lock.exists() {
        return matches!(FileLock::try_exclusive(&lock), Ok(Some(_)));
    }
    let changed = folder.metadata().and_then(|meta| meta.modified());
    let age = changed
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > YOUNG)
}

fn parse<T: std::str::FromStr>(name: &std::ffi::OsStr) -> Option<T> {
    name.to_str()?.parse().ok()
}
