//! Sessions by the names that the client chose. They belong to this process and end with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brig_reason::ReasonCode;
use brig_sandbox::{AgentId, Error, Sandbox, Session, SessionConfig, SessionId};

use crate::error::ToolError;
use crate::images::Seen;

/// How many named sessions may be open at a time.
const MOST: usize = 16;

#[derive(Debug)]
pub(crate) struct Sessions {
    sandbox: Sandbox,
    agent: AgentId,
    config: SessionConfig,
    operator: Option<String>,
    slots: Mutex<HashMap<SessionId, Arc<Slot>>>,
}

/// A name. Held by everyone who uses the session, so that nobody else ends it for being idle.
#[derive(Debug)]
struct Slot {
    /// Locked while it is created or ended, so that both happen once.
    open: tokio::sync::Mutex<Option<Arc<Open>>>,
    used: Mutex<Instant>,
}

/// A session that exists.
#[derive(Debug)]
pub(crate) struct Open {
    pub session: Session,
    /// Images that need not be shown again.
    pub seen: Seen,
    /// One change of a file that depends on its content at a time.
    pub appending: tokio::sync::Mutex<()>,
}

/// A session in use.
#[derive(Debug)]
pub(crate) struct InUse {
    pub open: Arc<Open>,
    /// Whether this use created it.
    pub is_new: bool,
    /// `None` for a session of one call.
    slot: Option<Arc<Slot>>,
}

impl InUse {
    pub(crate) fn session(&self) -> &Session {
        &self.open.session
    }

    pub(crate) fn is_named(&self) -> bool {
        self.slot.is_some()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            *lock(&slot.used) = Instant::now();
        }
    }
}

impl Sessions {
    pub(crate) fn new(
        sandbox: Sandbox,
        agent: AgentId,
        config: SessionConfig,
        operator: Option<String>,
    ) -> Self {
        Self {
            sandbox,
            agent,
            config,
            operator,
            slots: Mutex::default(),
        }
    }

    /// The session of that name; it is created if there is none.
    pub(crate) async fn named(&self, id: &SessionId) -> Result<InUse, ToolError> {
        let slot = self.slot(id)?;
        let mut state = slot.open.lock().await;
        let (open, is_new) = match &*state {
            Some(open) => (open.clone(), false),
            None => (
                state.insert(self.create(Some(id.clone())).await?).clone(),
                true,
            ),
        };
        drop(state);
        Ok(InUse {
            open,
            is_new,
            slot: Some(slot),
        })
    }

    /// The session of that name, if there is one.
    pub(crate) async fn existing(&self, id: &SessionId) -> Option<InUse> {
        let slot = lock(&self.slots).get(id).cloned()?;
        let open = slot.open.lock().await.clone()?;
        Some(InUse {
            open,
            is_new: false,
            slot: Some(slot),
        })
    }

    /// The same for who only looks: it goes on being idle.
    pub(crate) async fn unused(&self, id: &SessionId) -> Option<Arc<Open>> {
        let slot = lock(&self.slots).get(id).cloned()?;
        slot.open.lock().await.clone()
    }

    /// A session for one call. The caller ends it with [`Self::end_unnamed`].
    pub(crate) async fn unnamed(&self) -> Result<InUse, ToolError> {
        Ok(InUse {
            open: self.create(None).await?,
            is_new: true,
            slot: None,
        })
    }

    pub(crate) async fn end_unnamed(&self, used: &InUse) -> Result<(), ToolError> {
        if used.is_named() {
            return Ok(());
        }
        let ended = used.session().destroy().await;
        ended.map_err(|error| self.failed(&error))
    }

    /// Ends a session, with what runs in it. False if there is none of that name.
    pub(crate) async fn end(&self, id: &SessionId) -> Result<bool, ToolError> {
        let Some(slot) = lock(&self.slots).get(id).cloned() else {
            return Ok(false);
        };
        // Locked until it is gone: a session of the same name can't be made before.
        let mut open = slot.open.lock().await;
        match &*open {
            Some(ending) => {
                let ended = ending.session.destroy().await;
                ended.map_err(|error| self.failed(&error))?;
                *open = None;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The names of all that are open, sorted.
    pub(crate) fn names(&self) -> Vec<SessionId> {
        let mut names: Vec<SessionId> = lock(&self.slots).keys().cloned().collect();
        names.sort();
        names
    }

    /// Ends those that nobody used for that time.
    pub(crate) async fn end_idle(&self, idle: Duration) {
        let unused: Vec<SessionId> = (lock(&self.slots).iter())
            .filter(|(_, slot)| Arc::strong_count(slot) == 1 && lock(&slot.used).elapsed() >= idle)
            .map(|(id, _)| id.clone())
            .collect();
        for id in unused {
            // Its error was recorded, and there is no call to report it to.
            let _ = self.end(&id).await;
        }
    }

    pub(crate) async fn end_all(&self) {
        for id in self.names() {
            let _ = self.end(&id).await;
        }
    }

    pub(crate) fn failed(&self, error: &Error) -> ToolError {
        ToolError::of(error, self.operator.as_deref())
    }

    fn slot(&self, id: &SessionId) -> Result<Arc<Slot>, ToolError> {
        let mut slots = lock(&self.slots);
        // A name without a session that nobody uses.
        let is_free = |slot: &Arc<Slot>| {
            Arc::strong_count(slot) == 1 && slot.open.try_lock().is_ok_and(|open| open.is_none())
        };
        slots.retain(|_, slot| !is_free(slot));
        if !slots.contains_key(id) && slots.len() >= MOST {
            let problem = format!("{MOST} sessions are open; end one with end_session");
            return Err(ToolError::new(ReasonCode::McpSessions, problem));
        }
        let new = || {
            Arc::new(Slot {
                open: tokio::sync::Mutex::new(None),
                used: Mutex::new(Instant::now()),
            })
        };
        Ok(slots.entry(id.clone()).or_insert_with(new).clone())
    }

    async fn create(&self, id: Option<SessionId>) -> Result<Arc<Open>, ToolError> {
        let created = (self.sandbox).create_session(&self.agent, id, self.config.clone());
        let session = created.await.map_err(|error| self.failed(&error))?;
        let seen = Seen::default();
        // What a directory of the host contains already is nothing new.
        if self.config.workspace.is_some() {
            seen.remember(&session).await;
        }
        Ok(Arc::new(Open {
            session,
            seen,
            appending: tokio::sync::Mutex::default(),
        }))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
