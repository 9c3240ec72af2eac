use tokio::sync::{mpsc, oneshot};

use super::{Ends, ExecSignal};
use crate::request::TerminalSize;
use crate::{Error, Event, ExecutionId, KillReason, Report, Result};

/// A running execution. Dropping it cancels the execution; see [`ExecutionHandle::detach`].
#[derive(Debug)]
pub struct ExecutionHandle {
    id: ExecutionId,
    signals: mpsc::UnboundedSender<ExecSignal>,
    events: Option<mpsc::Receiver<Event>>,
    done: oneshot::Receiver<Result<Report>>,
    cancel_on_drop: bool,
}

impl ExecutionHandle {
    pub(crate) fn new(
        id: ExecutionId,
        ends: Ends,
        done: oneshot::Receiver<Result<Report>>,
    ) -> Self {
        Self {
            id,
            signals: ends.signals,
            events: ends.events,
            done,
            cancel_on_drop: true,
        }
    }

    /// The id of the execution, as in records.
    pub fn id(&self) -> &ExecutionId {
        &self.id
    }

    /// The next piece of output; `None` at the end. Needs `stream` in the request.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.as_mut()?.recv().await
    }

    /// Ends all its processes. Has no effect if it has already ended.
    pub fn cancel(&self) {
        self.send(ExecSignal::Kill(KillReason::Cancelled));
    }

    /// Sends a signal to the program. SIGINT, SIGTERM, SIGHUP and SIGQUIT also reach what it has
    /// started in its process group, as from a terminal.
    pub fn signal(&self, signal: i32) {
        self.send(ExecSignal::Posix(signal));
    }

    /// Changes the size of its terminal.
    pub fn resize(&self, size: TerminalSize) {
        self.send(ExecSignal::Resize(size));
    }

    fn send(&self, signal: ExecSignal) {
        // Fails only if the execution has ended.
        let _ = self.signals.send(signal);
    }

    /// Waits for the end. Output that was not read is dropped from the stream, not from the report.
    pub async fn wait(mut self) -> Result<Report> {
        self.report().await
    }

    /// As [`Self::wait`], for a caller that may have to signal it meanwhile: the future can be
    /// dropped and made again until it has answered.
    pub async fn report(&mut self) -> Result<Report> {
        while self.next_event().await.is_some() {}
        let answer = (&mut self.done).await;
        self.cancel_on_drop = false;
        answer.unwrap_or_else(|_| Err(Error::InstanceLost("the execution was abandoned".into())))
    }

    /// Lets the execution continue without waiting for it.
    pub fn detach(mut self) -> ExecutionId {
        self.cancel_on_drop = false;
        self.id.clone()
    }
}

impl Drop for ExecutionHandle {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            self.cancel();
        }
    }
}
