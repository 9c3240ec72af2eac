//! A place among the session's executions, given back whatever happens.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::inner::Inner;
use crate::backend::ExecCommand;
use crate::shared::lock;
use crate::{Error, ExecutionId, Report, Result};

pub(crate) struct Ticket {
    inner: Arc<Inner>,
    pub id: ExecutionId,
    finished: bool,
}

impl Ticket {
    pub fn take(inner: &Arc<Inner>, control: mpsc::UnboundedSender<ExecCommand>) -> Result<Self> {
        let id = ExecutionId::random();
        let mut state = lock(&inner.state);
        if state.doomed() {
            return Err(inner.gone());
        }
        state.open += 1;
        state.busy.raise(true);
        state.table.add(&id, control);
        Ok(Self {
            inner: inner.clone(),
            id,
            finished: false,
        })
    }

    pub fn started(&self) {
        lock(&self.inner.state).table.started(&self.id);
    }

    pub fn finish(&mut self, result: &Result<Report>) {
        self.settle(result.as_ref());
    }

    pub fn fail(&mut self, error: &Error) {
        self.settle(Err(error));
    }

    fn settle(&mut self, result: Result<&Report, &Error>) {
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
            self.fail(&Error::InstanceLost("the execution was abandoned".into()));
        }
    }
}

/// A file transfer under way.
pub(super) struct Transfer<'a>(&'a Inner);

impl<'a> Transfer<'a> {
    pub fn begin(inner: &'a Inner) -> Result<Self> {
        let mut state = lock(&inner.state);
        if state.doomed() {
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
