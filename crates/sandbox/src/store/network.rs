//! What was changed of a session's network since it was created. Any process may change it, also
//! while another one has the session open, which then follows.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use brig_egress::{Layer, LayerKind};

use super::Store;
use super::atomic::{put_json, read_json};
use super::flock::FileLock;

use crate::{AgentId, Error, Result, SessionId};

const FILE: &str = "network.json";
const LOCK: &str = "network.lock";

impl Store {
    pub(crate) fn network_file(&self, agent: &AgentId, id: &SessionId) -> NetworkFile {
        NetworkFile(self.session_path(agent, id).join(FILE))
    }

    /// Changes it, once `record` has taken note of what it was and what it becomes. Nothing if there
    /// is no such session.
    pub(crate) fn change_network(
        &self,
        agent: &AgentId,
        id: &SessionId,
        change: impl FnOnce(&mut Layer),
        record: impl FnOnce(&Layer, &Layer) -> Result<()>,
    ) -> Result<Option<Layer>> {
        let directory = self.session_path(agent, id);
        let failed = |error: io::Error| Error::io(format!("session `{id}`"), error);
        if !self.exists(agent, id) {
            return Ok(None);
        }
        // So that nobody destroys it meanwhile, and another session gets the name.
        let Some(_changing) = self.lock_changes(&directory, id)? else {
            return Ok(None);
        };
        let doing = "changes the hosts of the session";
        let lock = FileLock::exclusive(&directory.join(LOCK), doing).map_err(failed)?;
        let file = NetworkFile(directory.join(FILE));
        let before = file.read().map_err(failed)?;
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            record(&before, &after)?;
            let put = put_json(&file.0, &after).map_err(failed)?;
            put.confirmed(|| format!("the hosts of session `{id}` are changed"))?;
        }
        drop(lock);
        Ok(Some(after))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NetworkFile(PathBuf);

impl NetworkFile {
    pub(crate) fn layer(&self) -> Result<Layer> {
        self.read()
            .map_err(|error| Error::io("the network of a session", error))
    }

    fn read(&self) -> io::Result<Layer> {
        match read_json(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Layer::new(LayerKind::Session))
            }
            read => read,
        }
    }

    /// Another one whenever it was changed: it is replaced as a whole.
    pub(crate) fn stamp(&self) -> Option<(u64, SystemTime)> {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.0.metadata().ok()?;
        Some((metadata.ino(), metadata.modified().ok()?))
    }
}
