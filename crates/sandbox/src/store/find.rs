//! Finding a session by its directory, without reading any file.

use std::io;
use std::path::Path;

use super::Store;
use super::home::is_abandoned;
use super::sweep::{at, is_missing};
use crate::{AgentId, SessionId, SessionStatus};

impl Store {
    /// Whether there is a directory for it, whatever is in there, and no link to another place. What is left of one that
    /// was never created does not count. An error if it can't be seen.
    pub(crate) fn has(&self, agent: &AgentId, id: &SessionId) -> io::Result<bool> {
        let path = self.session_path(agent, id);
        let is_directory = |path: &Path| match path.symlink_metadata() {
            Ok(found) => Ok(found.is_dir()),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(at(path, error)),
        };
        Ok(is_directory(path.parent().unwrap_or(&path))?
            && is_directory(&path)?
            && !is_abandoned(&path))
    }

    /// The agents that have a session with this id, sorted.
    pub(crate) fn agents_with(&self, id: &SessionId) -> io::Result<Vec<AgentId>> {
        let mut agents = Vec::new();
        for entry in std::fs::read_dir(self.root.join("sessions"))? {
            let name = entry?.file_name();
            let agent = name.to_str().and_then(|name| name.parse().ok());
            if let Some(agent) = agent
                && self.has(&agent, id)?
            {
                agents.push(agent);
            }
        }
        agents.sort();
        Ok(agents)
    }

    /// The status of a session that no instance of this process serves.
    pub(crate) fn status(&self, agent: &AgentId, id: &SessionId) -> SessionStatus {
        if self.is_busy(agent, id) {
            SessionStatus::Executing
        } else if self.exists(agent, id) {
            SessionStatus::Ready
        } else {
            SessionStatus::Destroyed
        }
    }
}
