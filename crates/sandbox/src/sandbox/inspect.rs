//! Everything that is known of a session, without opening it: another process may have it.

use std::io::ErrorKind;

use serde::Serialize;

use super::{Sandbox, SessionInfo};
use crate::sessions::StateProblem;
use crate::{
    AgentId, Checkpoint, ControlState, Controls, Error, Result, Session, SessionConfig, SessionId,
    SessionStatus, needs,
};

/// All that is known about a session.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionDetails {
    /// As in the list.
    #[serde(flatten)]
    pub info: SessionInfo,
    /// What it was created with.
    pub config: SessionConfig,
    /// What enforces each control here and now, and how strongly.
    pub enforcement: Vec<ControlState>,
    /// Oldest first.
    pub checkpoints: Vec<Checkpoint>,
    /// Checkpoints that can't be read.
    pub unreadable: Vec<StateProblem>,
}

impl Sandbox {
    /// All that is known about a session, without starting it.
    pub async fn inspect_session(&self, agent: &AgentId, id: &SessionId) -> Result<SessionDetails> {
        let missing = || Error::NoSession {
            agent: agent.to_string(),
            session: id.to_string(),
        };
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => missing(),
            _ => Error::io(format!("session `{id}`"), error),
        };
        let mut unreadable = Vec::new();
        let (info, config, checkpoints) = match self.shared.storage.durable() {
            Some(store) => {
                let record = store.read(agent, id).map_err(failed)?;
                let saved = store.checkpoints(agent, id).map_err(failed)?;
                let info = self.info(store, agent, id);
                unreadable.extend(saved.unreadable.into_iter().map(Into::into));
                let checkpoints = saved.checkpoints.into_iter().map(Into::into);
                (info, record.config, checkpoints.collect())
            }
            None => {
                let inner = self.shared.session(agent, id);
                let inner = inner.ok_or_else(missing)?;
                let (info, config) = (self.info_of(&inner), inner.config.clone());
                let saved = Session::of(self.shared.clone(), inner).checkpoints()?;
                (info, config, saved)
            }
        };
        if info.status == SessionStatus::Destroyed {
            return Err(missing());
        }
        // A session is shown also if its backend can't be used now.
        let offer = self.shared.backend.probe(&config).await;
        let controls = offer.map_or_else(|_| Controls::default(), |offer| offer.controls);
        let enforcement = needs::stated(&config, controls).0;
        Ok(SessionDetails {
            info,
            config,
            enforcement,
            checkpoints,
            unreadable,
        })
    }
}
