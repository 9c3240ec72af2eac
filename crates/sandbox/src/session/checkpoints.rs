//! Saved states of a session's files.

use brig_audit::Event as Fact;
use jiff::Timestamp;
use serde::Serialize;

use super::Session;
use super::inner::Phase;
use super::live::{Slot, with_home};
use super::open::can_save;
use crate::shared::lock;
use crate::store::{CheckpointRecord, Home, SessionRecord, tampered};
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

impl From<CheckpointRecord> for Checkpoint {
    fn from(record: CheckpointRecord) -> Self {
        let bytes = record.bytes();
        let CheckpointRecord {
            name,
            created,
            digest,
            ..
        } = record;
        Self {
            name,
            created,
            digest,
            bytes,
        }
    }
}

impl Session {
    /// Saves the files under a name. Refused while something runs.
    pub async fn save_state(&self, name: &CheckpointName) -> Result<Checkpoint> {
        self.savable()?;
        let mut slot = self.inner.slot.lock().await;
        self.inner.idle()?;
        let home = self.inner.home_in(&mut slot, &self.shared).await?;
        if home.has_checkpoint(name) {
            return Err(Error::CheckpointExists {
                name: name.to_string(),
            });
        }
        let head = home.head();
        if let Some(live) = slot.live.as_ref().filter(|live| !live.is_lost()) {
            head.save(live.instance.as_ref()).await?;
        }
        let (shared, owner) = (self.shared.clone(), self.inner.owner.clone());
        let name = name.clone();
        let save = move |home: &mut Home| {
            let pool = home.store.pool()?;
            let record = CheckpointRecord::new(name, home.frozen(&pool)?);
            pool.sync()?;
            let fact = Fact::CheckpointSaved {
                name: record.name.to_string(),
                digest: record.digest.clone(),
            };
            shared.record(&owner, None, fact)?;
            home.write_checkpoint(&record)?;
            Ok(record.into())
        };
        with_home(&mut slot, save).await
    }

    /// Puts the files back as they were. A state that was changed on disk is refused, and the
    /// session stays as it is. Refused while something runs.
    pub async fn restore_state(&self, name: &CheckpointName) -> Result<()> {
        self.savable()?;
        let mut slot = self.inner.slot.lock().await;
        self.inner.idle()?;
        let record = self.verified(&mut slot, name).await?;
        let fact = Fact::SessionRestored {
            checkpoint: name.to_string(),
            digest: record.digest.clone(),
        };
        self.shared.record(&self.inner.owner, None, fact)?;
        if let Some(live) = slot.live.take() {
            live.instance.destroy().await?;
        }
        with_home(&mut slot, move |home| home.rebase(record.layers)).await?;
        lock(&self.inner.state).files_lost = false;
        self.inner.enter(Phase::Open)
    }

    /// Oldest first.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let (agent, id) = self.inner.key();
        let store = self.shared.place.store()?;
        match store.checkpoints(&agent, &id) {
            Ok(records) => Ok(records.into_iter().map(Into::into).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io(format!("saved states of session `{id}`"), error)),
        }
    }

    pub async fn delete_checkpoint(&self, name: &CheckpointName) -> Result<()> {
        let mut slot = self.inner.slot.lock().await;
        let home = self.inner.home_in(&mut slot, &self.shared).await?;
        if !home.has_checkpoint(name) {
            return Err(Error::NoCheckpoint(name.to_string()));
        }
        let fact = Fact::CheckpointDeleted {
            name: name.to_string(),
        };
        self.shared.record(&self.inner.owner, None, fact)?;
        let name = name.clone();
        with_home(&mut slot, move |home| home.remove_checkpoint(&name)).await
    }

    /// A new session that starts from a saved state of this one, with the same config.
    pub async fn fork(&self, name: &CheckpointName, id: Option<SessionId>) -> Result<Session> {
        self.savable()?;
        let id = id.unwrap_or_else(SessionId::random);
        let mut slot = self.inner.slot.lock().await;
        let checkpoint = self.verified(&mut slot, name).await?;
        let home = self.inner.home_in(&mut slot, &self.shared).await?;
        let (store, base) = (home.store.clone(), home.record.base.clone());
        let fact = Fact::SessionForked {
            from: self.id().to_string(),
            checkpoint: name.to_string(),
        };
        let make = move |record: SessionRecord| {
            // Another process may destroy this session at any time, and its layers with it.
            let pool = store.pool()?;
            pool.exist(&checkpoint.layers)?;
            store.create(SessionRecord {
                layers: checkpoint.layers,
                base,
                ..record
            })
        };
        self.forked(id, make, vec![fact]).await
    }

    fn savable(&self) -> Result<()> {
        if self.inner.config.workspace.is_some() {
            let problem = "the workspace is a folder of the host, which Brig does not save";
            return Err(Error::InvalidConfig {
                what: "checkpoint",
                problem: problem.into(),
            });
        }
        can_save(&self.inner.config, &lock(&self.inner.state).plan)
    }

    async fn verified(&self, slot: &mut Slot, name: &CheckpointName) -> Result<CheckpointRecord> {
        self.inner.home_in(slot, &self.shared).await?;
        let name = name.clone();
        let verify = move |home: &mut Home| {
            let record = home.checkpoint(&name)?;
            let pool = home.store.pool()?;
            pool.verify(&record.layers)
                .map_err(|problem| tampered(&name, problem))?;
            Ok(record)
        };
        with_home(slot, verify).await
    }
}
