//! Saved states of a session's files.

use jiff::Timestamp;
use serde::Serialize;

use super::Session;
use crate::{CheckpointName, Error, Result, SessionId};

/// A saved state. Its files never change again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    pub name: CheckpointName,
    pub created: Timestamp,
    /// Over everything in it.
    pub digest: String,
    /// What its files take.
    pub bytes: u64,
}

impl Session {
    /// Saves the files under a name. Refused while something runs.
    pub async fn save_state(&self, name: &CheckpointName) -> Result<Checkpoint> {
        Err(Error::NoCheckpoint(name.to_string()))
    }

    /// Puts the files back as they were. A state that was changed on disk is refused, and the
    /// session stays as it is.
    pub async fn restore_state(&self, name: &CheckpointName) -> Result<()> {
        Err(Error::NoCheckpoint(name.to_string()))
    }

    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        Ok(Vec::new())
    }

    pub async fn delete_checkpoint(&self, name: &CheckpointName) -> Result<()> {
        Err(Error::NoCheckpoint(name.to_string()))
    }

    /// A new session that starts from a saved state of this one.
    pub async fn fork(&self, name: &CheckpointName, _id: Option<SessionId>) -> Result<Session> {
        Err(Error::NoCheckpoint(name.to_string()))
    }

    /// Ends the instance; the session and its files stay.
    pub async fn close(&self) -> Result<()> {
        Ok(())
    }
}
