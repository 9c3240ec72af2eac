//! What is under way in a session: counted at the beginning, and given back however it ends.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::inner::Inner;
use crate::execution::ExecSignal;
use crate::shared::lock;
use crate::{Error, ExecutionId, Report, Result};

/// An execution under way.
pub(crate) struct Ticket {
    inner: Arc<Inner>,
    pub id: ExecutionId,
    finished: bool,
}

impl Ticket {
    pub(super) fn take(
        inner: &Arc<Inner>,
        signals: mpsc::UnboundedSender<ExecSignal>,
    ) -> Result<Self> {
        let id = ExecutionId::random();
        let mut state = lock(&inner.state);
        if state.is_destroyed() {
            return Err(inner.gone());
        }
        state.open += 1;
        state.busy.raise(true);
        state.table.add(&id, signals);
        Ok(Self {
            inner: inner.clone(),
            id,
            finished: false,
        })
    }

    pub(super) fn started(&self) {
        lock(&self.inner.state).table.started(&self.id);
    }

    pub(super) fn finish(&mut self, result: Result<&Report, &Error>) {
        self.finished = true;
        let mut state = lock(&self.inner.state);
        state.table.finish(&self.id, result);
        state.open -= 1;
        let open = state.open;
        state.busy.raise(open > 0);
        drop(state);
        self.inner.changed.notify_waiters();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            let abandoned = Error::InstanceLost("the execution was abandoned".into());
            self.finish(Err(&abandoned));
        }
    }
}

/// A file transfer under way.
pub(super) struct Transfer<'a>(&'a Inner);

impl<'a> Transfer<'a> {
    pub(super) fn begin(inner: &'a Inner) -> Result<Self> {
        let mut state = lock(&inner.state);
        if state.is_destroyed() {
            return Err(inner.gone());
        }
        state.transfers += 1;
        Ok(Self(inner))
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).transfers -= 1;
    }
}
