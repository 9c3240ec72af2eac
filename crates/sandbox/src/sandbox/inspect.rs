//! Everything that is known of a session, without opening it: another process may have it.

use std::io::ErrorKind;

use serde::Serialize;

use super::{Sandbox, SessionInfo};
use crate::shared::lock;
use crate::{
    AgentId, Checkpoint, ControlState, Error, Result, Session, SessionConfig, SessionId,
    SessionStatus,
};

#[derive(Clone, Debug, Serialize)]
pub struct SessionDetails {
    #[serde(flatten)]
    pub info: SessionInfo,
    pub config: SessionConfig,
    /// What holds each limit here and now, and how strongly.
    pub enforcement: Vec<ControlState>,
    /// Oldest first.
    pub checkpoints: Vec<Checkpoint>,
}

impl Sandbox {
    pub fn inspect_session(&self, agent: &AgentId, id: &SessionId) -> Result<SessionDetails> {
        let missing = || Error::NoSession {
            agent: agent.to_string(),
            session: id.to_string(),
        };
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => missing(),
            _ => Error::io(format!("session `{id}`"), error),
        };
        let (info, config, checkpoints) = match self.shared.place.durable() {
            Some(store) => {
                let record = store.read(agent, id).map_err(failed)?;
                let saved = store.checkpoints(agent, id).map_err(failed)?;
                let info = self.info(store, agent, id);
                (
                    info,
                    record.config,
                    saved.into_iter().map(Into::into).collect(),
                )
            }
            None => {
                let key = (agent.clone(), id.clone());
                let inner = lock(&self.shared.sessions).get(&key).cloned();
                let inner = inner.ok_or_else(missing)?;
                let (info, config) = (self.info_of(&inner), inner.config.clone());
                let saved = Session::of(self.shared.clone(), inner).checkpoints()?;
                (info, config, saved)
            }
        };
        if info.status == SessionStatus::Destroyed {
            return Err(missing());
        }
        let enforcement = self.shared.backend.controls_for(&config).0;
        Ok(SessionDetails {
            info,
            config,
            enforcement,
            checkpoints,
        })
    }
}
