//! Saved states of a session's files.

use brig_audit::Event as Fact;
use jiff::Timestamp;
use serde::Serialize;

use super::Session;
use super::inner::Phase;
use super::live::{Slot, with_home};
use super::open::can_save;
use crate::backend::SnapshotState;
use crate::shared::{SessionKey, lock};
use crate::store::{CheckpointListing, CheckpointRecord, Home, SessionRecord, Store, tampered};
use crate::{CheckpointName, Error, Result, SessionId};

/// A saved state. Its files never change again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Its name.
    pub name: CheckpointName,
    /// When it was saved.
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
            self.shared.save(&head, live.instance.as_ref()).await?;
        }
        let (shared, key) = (self.shared.clone(), self.inner.key.clone());
        let name = name.clone();
        let save = move |home: &mut Home| {
            let change = home.change()?;
            let record = CheckpointRecord::new(name, home.frozen(&change)?);
            change.sync()?;
            let fact = Fact::CheckpointSaved {
                name: record.name.to_string(),
                digest: record.digest.clone(),
            };
            shared.announce(&key, "checkpoint_saved", fact)?;
            let written = home.write_checkpoint(&record);
            if matches!(written, Ok(()) | Err(Error::Incomplete { .. })) {
                change.finish();
            }
            shared.done(&key, "checkpoint_saved", written)?;
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
        let shared = &self.shared;
        shared.announce(&self.inner.key, "session_restored", fact)?;
        let restored = self.put_back(&mut slot, record).await;
        let restored = (self.shared).done(&self.inner.key, "session_restored", restored);
        let (store, snapshots) = restored?;
        if snapshots {
            self.shared.delete_unused_snapshots(&store).await?;
        }
        lock(&self.inner.state).files_lost = false;
        self.inner.enter(Phase::Open)
    }

    /// Ends the instance and puts the files back. Returns the store, and whether the backend keeps snapshots.
    async fn put_back(&self, slot: &mut Slot, record: CheckpointRecord) -> Result<(Store, bool)> {
        let live = slot.live.take();
        if let Some(live) = &live {
            let instance = live.instance.as_ref();
            self.shared.destroy(&self.inner.key, instance).await?;
        }
        let lease = slot.home.as_ref().and_then(|home| home.lease.clone());
        if let Some(lease) = lease.filter(|_| live.is_none()) {
            self.shared.end(&self.inner.key, &lease).await?;
        }
        let restore = move |home: &mut Home| {
            home.set_lease(None)?;
            home.restore(record.layers)?;
            Ok((home.store.clone(), home.record.snapshots))
        };
        with_home(slot, restore).await
    }

    /// Oldest first.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let SessionKey { agent, session: id } = &self.inner.key;
        let store = self.shared.storage.store()?;
        match store
            .checkpoints(agent, id)
            .and_then(CheckpointListing::whole)
        {
            Ok(records) => Ok(records.into_iter().map(Into::into).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io(format!("saved states of session `{id}`"), error)),
        }
    }

    /// Removes a saved state.
    pub async fn delete_checkpoint(&self, name: &CheckpointName) -> Result<()> {
        let mut slot = self.inner.slot.lock().await;
        let home = self.inner.home_in(&mut slot, &self.shared).await?;
        if !home.has_checkpoint(name) {
            return Err(Error::NoCheckpoint(name.to_string()));
        }
        let fact = Fact::CheckpointDeleted {
            name: name.to_string(),
        };
        let shared = &self.shared;
        shared.announce(&self.inner.key, "checkpoint_deleted", fact)?;
        let name = name.clone();
        let remove = move |home: &mut Home| {
            home.remove_checkpoint(&name)?;
            Ok((home.store.clone(), home.record.snapshots))
        };
        let removed = with_home(&mut slot, remove).await;
        let removed = (self.shared).done(&self.inner.key, "checkpoint_deleted", removed);
        let (store, snapshots) = removed?;
        match snapshots {
            true => self.shared.delete_unused_snapshots(&store).await,
            false => Ok(()),
        }
    }

    /// A new session that starts from a saved state of this one, with the same config.
    pub async fn fork(&self, name: &CheckpointName, id: Option<SessionId>) -> Result<Session> {
        self.savable()?;
        let id = id.unwrap_or_else(SessionId::random);
        let mut slot = self.inner.slot.lock().await;
        let checkpoint = self.verified(&mut slot, name).await?;
        let home = self.inner.home_in(&mut slot, &self.shared).await?;
        let (store, pinned) = (home.store.clone(), home.record.pinned.clone());
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
                pinned,
                ..record
            })
        };
        self.forked(id, make, vec![fact]).await
    }

    fn savable(&self) -> Result<()> {
        if self.inner.config.workspace.is_some() {
            let problem = "the workspace is a host directory, which Brig does not save";
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
        let record = with_home(slot, verify).await?;
        let snapshots = record
            .layers
            .iter()
            .filter_map(|layer| layer.snapshot.as_ref());
        for snapshot in snapshots {
            let problem = match self.shared.backend.check_snapshot(snapshot).await? {
                SnapshotState::Intact => continue,
                SnapshotState::Changed => "its snapshot has changed",
                SnapshotState::Missing => "its snapshot is missing",
            };
            return Err(tampered(&record.name, problem));
        }
        Ok(record)
    }
}
