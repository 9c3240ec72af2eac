//! Sessions on disk, for what needs no backend: finding, listing, inspecting and destroying them, and
//! changing their network rules.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_audit::{Event as Fact, Recorder};
use brig_egress::{Layer, Rule};
use jiff::Timestamp;
use serde::Serialize;

use crate::shared::SessionKey;
use crate::store::{
    AtBackend, CheckpointListing, Missing, Removal, SessionRecord, Store, blocking,
};
use crate::{
    AgentId, BackendId, Checkpoint, Error, Result, SessionDetails, SessionId, SessionInfo,
    SessionStatus,
};

/// The sessions in a state directory, whichever backend they run on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sessions {
    store: Store,
    recorder: Arc<dyn Recorder>,
    collects: bool,
}

impl Sessions {
    /// Opens a state directory, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// It cannot be created or read.
    pub fn open(state_dir: &Path, recorder: Arc<dyn Recorder>) -> Result<Self> {
        let store = Store::open(state_dir)?;
        Ok(Self {
            store,
            recorder,
            collects: true,
        })
    }

    /// For many sessions: destroying one leaves its saved states, until [`Sessions::collect`] or the next start removes
    /// those of all at once. Finding out what nobody needs reads every session.
    #[must_use]
    pub fn collecting_later(self) -> Self {
        Self {
            collects: false,
            ..self
        }
    }

    /// The agent whose session has this id. Looks at directory names only.
    ///
    /// # Errors
    ///
    /// [`Error::SessionUnknown`] if no agent has one, and [`Error::SessionAmbiguous`] if several have.
    pub fn find(&self, agent: Option<&AgentId>, id: &SessionId) -> Result<AgentId> {
        let agents = match agent {
            Some(agent) if self.store.has(agent, id).map_err(list_failed)? => {
                return Ok(agent.clone());
            }
            Some(_) => Vec::new(),
            None => self.store.agents_with(id).map_err(list_failed)?,
        };
        match agents.as_slice() {
            [] => Err(Error::SessionUnknown(match agent {
                Some(agent) => format!("{agent}/{id}"),
                None => id.to_string(),
            })),
            [agent] => Ok(agent.clone()),
            _ => Err(Error::SessionAmbiguous {
                id: id.to_string(),
                agents: agents.iter().map(ToString::to_string).collect(),
            }),
        }
    }

    /// All sessions that can be seen, sorted by agent and id. Those whose record cannot be read are listed as failed.
    /// [`Sessions::problems`] names what can't be seen.
    ///
    /// # Errors
    ///
    /// The state directory cannot be read.
    pub fn list(&self) -> Result<Vec<SessionInfo>> {
        let mut names = self.store.listing().map_err(list_failed)?.names;
        names.sort();
        let info = |(agent, id): &(AgentId, SessionId)| self.info(agent, id);
        Ok(names.iter().map(info).collect())
    }

    /// What can't be looked into, and sessions that are not there though nobody destroyed them. What is in the records
    /// is not looked at: [`Sessions::problems`] does that.
    ///
    /// # Errors
    ///
    /// The state directory cannot be read.
    pub fn unseen(&self) -> Result<Vec<StateProblem>> {
        let unreadable = self.store.listing().map_err(list_failed)?.unreadable;
        self.with_missing(unreadable)
    }

    /// What can't be read or written in the state directory, and sessions that are not there though nobody destroyed them. While
    /// something can't be read, no saved state is removed.
    ///
    /// # Errors
    ///
    /// The state directory cannot be read.
    pub fn problems(&self) -> Result<Vec<StateProblem>> {
        let mut problems = self.store.unreadable().map_err(list_failed)?;
        problems.extend(self.store.unwritable());
        self.with_missing(problems)
    }

    fn with_missing(
        &self,
        unreadable: Vec<(PathBuf, std::io::Error)>,
    ) -> Result<Vec<StateProblem>> {
        let mut problems: Vec<StateProblem> = unreadable.into_iter().map(Into::into).collect();
        match self.store.missing() {
            Ok(missing) => problems.extend(missing.iter().map(|missing| self.problem(missing))),
            // It is named above.
            Err(_) if !problems.is_empty() => {}
            Err(error) => return Err(list_failed(error)),
        }
        Ok(problems)
    }

    fn problem(&self, missing: &Missing) -> StateProblem {
        StateProblem {
            path: self.store.session_path(&missing.agent, &missing.id),
            problem: format!(
                "the session was not destroyed, but it is not there; {} of its saved states are kept",
                missing.layers.len()
            ),
        }
    }

    /// Gives up the saved states of sessions that are not there, if these were last seen before this time. Returns
    /// whose they were. [`Sessions::remove_unused_layers`] removes those that nobody else needs.
    ///
    /// # Errors
    ///
    /// The state directory cannot be read or changed.
    pub fn forget_missing(
        &self,
        before: Timestamp,
        really: bool,
    ) -> Result<Vec<(AgentId, SessionId, Timestamp)>> {
        let mut forgotten = Vec::new();
        for missing in self.store.missing().map_err(list_failed)? {
            let seen = missing.seen.try_into().unwrap_or(Timestamp::MAX);
            if seen >= before {
                continue;
            }
            let key = SessionKey::new(&missing.agent, &missing.id);
            // Another session may have the name: that one is not destroyed.
            let is_gone = !self
                .store
                .has(&missing.agent, &missing.id)
                .map_err(list_failed)?;
            let record = |fact| match is_gone {
                true => self.recorder.append(key.record(None, fact)),
                false => Ok(()),
            };
            if really {
                record(Fact::SessionDestroyRequested)?;
                missing.forget().map_err(list_failed)?;
                record(Fact::SessionDestroyed)?;
            }
            forgotten.push((missing.agent, missing.id, seen));
        }
        Ok(forgotten)
    }

    /// The backend that a session was created on.
    ///
    /// # Errors
    ///
    /// There is no such session, or its record cannot be read.
    pub fn backend(&self, agent: &AgentId, id: &SessionId) -> Result<BackendId> {
        Ok(self.record(agent, id)?.backend)
    }

    /// Everything that is known of a session. What enforces its limits is what was found when it was
    /// created.
    ///
    /// # Errors
    ///
    /// There is no such session, or its record cannot be read.
    pub fn inspect(&self, agent: &AgentId, id: &SessionId) -> Result<SessionDetails> {
        let record = self.record(agent, id)?;
        let saved = self.store.checkpoints(agent, id);
        let saved = saved.map_err(|error| failed(agent, id, error))?;
        Ok(SessionDetails {
            info: self.info(agent, id),
            config: record.config,
            enforcement: record.enforcement,
            checkpoints: saved.checkpoints.into_iter().map(Into::into).collect(),
            unreadable: saved.unreadable.into_iter().map(Into::into).collect(),
        })
    }

    /// Oldest first.
    ///
    /// # Errors
    ///
    /// There is no such session, or a record cannot be read: [`Sessions::inspect`] shows the others.
    pub fn checkpoints(&self, agent: &AgentId, id: &SessionId) -> Result<Vec<Checkpoint>> {
        let saved = self
            .store
            .checkpoints(agent, id)
            .and_then(CheckpointListing::whole);
        let saved = saved.map_err(|error| failed(agent, id, error))?;
        Ok(saved.into_iter().map(Into::into).collect())
    }

    /// The rules that were added to a session since it was created.
    ///
    /// # Errors
    ///
    /// There is no such session, or the rules cannot be read.
    pub fn network(&self, agent: &AgentId, id: &SessionId) -> Result<Layer> {
        if !self.store.exists(agent, id) {
            return Err(missing(agent, id));
        }
        self.store.network_file(agent, id).layer()
    }

    /// Changes these rules, after the change was recorded. An open session follows within a second,
    /// whichever process has it open.
    ///
    /// # Errors
    ///
    /// There is no such session, or the change cannot be recorded or written.
    /// [`Error::OtherBackend`] if its instance may go on without a process: then only a
    /// [`crate::Sandbox`] of its backend can change them.
    pub fn change_network(
        &self,
        agent: &AgentId,
        id: &SessionId,
        change: impl FnOnce(&mut Layer),
    ) -> Result<Layer> {
        let kept = self.store.at_backend(agent, id);
        refuse(id, kept.filter(|kept| kept.lease.is_some()))?;
        let key = SessionKey::new(agent, id);
        let changed = change_network(&self.store, self.recorder.as_ref(), &key, change)?;
        changed.ok_or_else(|| missing(agent, id))
    }

    /// Ends and removes a session, whichever process has it open. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// It cannot be removed, or the removal cannot be recorded. [`Error::OtherBackend`] if its backend
    /// keeps a part of it: then only a [`crate::Sandbox`] of that backend can remove it.
    pub async fn destroy(&self, agent: &AgentId, id: &SessionId) -> Result<bool> {
        self.remove(agent, id, None).await
    }

    /// The same, if nobody has it open, and it was not used since then.
    ///
    /// # Errors
    ///
    /// Those of [`Sessions::destroy`], and [`Error::SessionBusy`] if it is in use, or was used.
    pub async fn destroy_unused(
        &self,
        agent: &AgentId,
        id: &SessionId,
        since: Timestamp,
    ) -> Result<bool> {
        self.remove(agent, id, Some(since)).await
    }

    async fn remove(
        &self,
        agent: &AgentId,
        id: &SessionId,
        unused_since: Option<Timestamp>,
    ) -> Result<bool> {
        refuse(id, self.store.at_backend(agent, id))?;
        if !self.store.has(agent, id).map_err(list_failed)? {
            return Ok(false);
        }
        let key = SessionKey::new(agent, id);
        // Nothing is lost that is not on record.
        self.recorder
            .append(key.record(None, Fact::SessionDestroyRequested))?;
        let (store, own) = (self.store.clone(), SessionKey::new(agent, id));
        let collects = self.collects;
        let destroy = move || {
            let removal = Removal {
                collects_later: !collects,
                unused_since: unused_since.map(Into::into),
                ..Removal::default()
            };
            store.remove(&own.agent, &own.session, removal)
        };
        let destroyed = blocking(destroy).await;
        record_destroyed(self.recorder.as_ref(), &key, destroyed)
    }

    /// Removes the saved states of sessions that were destroyed and collect later. What can't be removed now is removed
    /// at the next start.
    pub fn collect(&self) {
        self.store.collect_unfinished();
    }

    /// When a session was last opened or changed; `None` while a process has it open.
    ///
    /// # Errors
    ///
    /// There is no such session.
    pub fn last_used(&self, agent: &AgentId, id: &SessionId) -> Result<Option<Timestamp>> {
        let used = self.store.last_used(agent, id);
        let used = used.map_err(|error| failed(agent, id, error))?;
        Ok(used.map(|at| at.try_into().unwrap_or(Timestamp::MAX)))
    }

    /// How many saved states no session and no checkpoint refers to, and the bytes that they take.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn unused_layers(&self) -> Result<(usize, u64)> {
        let unused = self.store.unused_layers();
        unused.map_err(|error| Error::io("saved states", error))
    }

    /// Removes these.
    ///
    /// # Errors
    ///
    /// One of them cannot be removed.
    pub fn remove_unused_layers(&self) -> Result<()> {
        let removed = self.store.collect();
        removed.map_err(|error| Error::io("saved states", error))
    }

    fn info(&self, agent: &AgentId, id: &SessionId) -> SessionInfo {
        let status = self.store.status(agent, id);
        SessionInfo::read(&self.store, agent, id, status)
    }

    fn record(&self, agent: &AgentId, id: &SessionId) -> Result<SessionRecord> {
        let record = self.store.read(agent, id);
        record.map_err(|error| match error.kind() {
            ErrorKind::NotFound if matches!(self.store.has(agent, id), Ok(true)) => {
                without_record(id)
            }
            _ => failed(agent, id, error),
        })
    }
}

/// Something that is wrong in the state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateProblem {
    /// Where.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: String,
}

impl From<(PathBuf, std::io::Error)> for StateProblem {
    fn from((path, error): (PathBuf, std::io::Error)) -> Self {
        let problem = error.to_string();
        Self { path, problem }
    }
}

impl fmt::Display for StateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl SessionInfo {
    /// Of a session on disk.
    pub(crate) fn read(
        store: &Store,
        agent: &AgentId,
        id: &SessionId,
        status: SessionStatus,
    ) -> Self {
        let (agent, id) = (agent.clone(), id.clone());
        match store.read(&agent, &id) {
            Ok(record) => Self {
                status,
                created: record.created,
                layers: record.layers.len(),
                bytes: store.bytes(&record),
                backend: record.backend.to_string(),
                agent,
                id,
            },
            Err(_) => Self {
                agent,
                id,
                status: SessionStatus::Failed,
                created: Timestamp::UNIX_EPOCH,
                backend: String::new(),
                layers: 0,
                bytes: 0,
            },
        }
    }
}

/// Records how the destruction of a session ended.
pub(crate) fn record_destroyed(
    recorder: &dyn Recorder,
    key: &SessionKey,
    destroyed: Result<bool>,
) -> Result<bool> {
    let fact = match &destroyed {
        Ok(false) => return destroyed,
        Ok(true) | Err(Error::Incomplete { .. }) => Fact::SessionDestroyed,
        Err(error) => operation_failed("session_destroyed", error),
    };
    let recorded = recorder.append(key.record(None, fact));
    match (destroyed, recorded) {
        (Ok(_), Err(error)) => Err(Error::Incomplete {
            done: format!("session `{}` is destroyed", key.session),
            problem: "its end is not on record",
            source: Box::new(error.into()),
        }),
        (destroyed, _) => destroyed,
    }
}

/// What is wrong with a session that is gone.
pub(crate) fn destroyed_but(key: &SessionKey, error: Error) -> Error {
    match error {
        Error::Incomplete { .. } => error,
        error => Error::Incomplete {
            done: format!("session `{}` is destroyed", key.session),
            problem: "not all that belonged to it could be ended or removed",
            source: Box::new(error),
        },
    }
}

/// The record of what its first record says and could not be done.
pub(crate) fn operation_failed(of: &str, error: &Error) -> Fact {
    Fact::OperationFailed {
        of: of.into(),
        code: error.code().into(),
        message: error.to_string(),
    }
}

/// Changes the rules of a session on disk, after the change was recorded. Nothing if there is no such session.
pub(crate) fn change_network(
    store: &Store,
    recorder: &dyn Recorder,
    key: &SessionKey,
    change: impl FnOnce(&mut Layer),
) -> Result<Option<Layer>> {
    let mut announced = false;
    let record = |before: &Layer, after: &Layer| {
        announced = true;
        let record = key.record(None, network_changed(before, after));
        recorder.append(record).map_err(Error::from)
    };
    let changed = store.change_network(&key.agent, &key.session, change, record);
    match &changed {
        Ok(_) | Err(Error::Incomplete { .. }) => {}
        Err(error) if announced => {
            let fact = operation_failed("allowlist_changed", error);
            // The caller gets the first error.
            let _ = recorder.append(key.record(None, fact));
        }
        Err(_) => {}
    }
    changed
}

/// The record of a change of a session's network rules. A `!` marks a rule that denies.
pub(crate) fn network_changed(before: &Layer, after: &Layer) -> Fact {
    let signed = |layer: &Layer| -> Vec<String> {
        let shown = |sign: &'static str| move |rule: &Rule| format!("{sign}{rule}");
        let allow = layer.allow.iter().map(shown(""));
        allow.chain(layer.deny.iter().map(shown("!"))).collect()
    };
    let (before, after) = (signed(before), signed(after));
    let without = |all: &[String], known: &[String]| -> Vec<String> {
        let new = all.iter().filter(|one| !known.contains(one));
        new.cloned().collect()
    };
    Fact::AllowlistChanged {
        layer: "session".into(),
        added: without(&after, &before),
        removed: without(&before, &after),
    }
}

/// Refuses what only the backend of a session can do.
fn refuse(id: &SessionId, kept: Option<AtBackend>) -> Result<()> {
    match kept {
        Some(kept) => Err(Error::OtherBackend {
            session: id.to_string(),
            backend: kept.backend,
        }),
        None => Ok(()),
    }
}

fn missing(agent: &AgentId, id: &SessionId) -> Error {
    Error::NoSession {
        agent: agent.to_string(),
        session: id.to_string(),
    }
}

/// The directory of a session without its record.
fn without_record(id: &SessionId) -> Error {
    let problem = "its session.json is missing; put it back, or destroy the session";
    Error::io(
        format!("session `{id}`"),
        std::io::Error::new(ErrorKind::NotFound, problem),
    )
}

fn failed(agent: &AgentId, id: &SessionId, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => missing(agent, id),
        _ => Error::io(format!("session `{id}`"), error),
    }
}

fn list_failed(error: std::io::Error) -> Error {
    Error::io("list of sessions", error)
}
