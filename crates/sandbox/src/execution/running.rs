use tokio::sync::{mpsc, oneshot};

use crate::backend::ExecCommand;
use crate::request::TerminalSize;
use crate::{Error, Event, ExecutionId, KillReason, Report, Result};

/// An execution under way. Dropping it cancels the execution; see [`Running::detach`].
#[derive(Debug)]
pub struct Running {
    id: ExecutionId,
    control: mpsc::UnboundedSender<ExecCommand>,
    events: Option<mpsc::Receiver<Event>>,
    done: oneshot::Receiver<Result<Report>>,
    cancel_on_drop: bool,
}

impl Running {
    pub(crate) fn new(
        id: ExecutionId,
        control: mpsc::UnboundedSender<ExecCommand>,
        events: Option<mpsc::Receiver<Event>>,
        done: oneshot::Receiver<Result<Report>>,
    ) -> Self {
        Self {
            id,
            control,
            events,
            done,
            cancel_on_drop: true,
        }
    }

    pub fn id(&self) -> &ExecutionId {
        &self.id
    }

    /// The next piece of output, or nothing more. Needs `stream` in the request.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.as_mut()?.recv().await
    }

    /// Ends the whole tree. Harmless when it has ended already.
    pub fn cancel(&self) {
        self.send(ExecCommand::Kill(KillReason::Cancelled));
    }

    pub fn signal(&self, signal: i32) {
        self.send(ExecCommand::Signal(signal));
    }

    pub fn resize(&self, size: TerminalSize) {
        self.send(ExecCommand::Resize(size));
    }

    fn send(&self, command: ExecCommand) {
        // Nobody listens any more once it has ended, which is what was wanted.
        let _ = self.control.send(command);
    }

    /// Waits for the end. Output that nobody read is dropped from the stream, not from the report.
    pub async fn wait(mut self) -> Result<Report> {
        while self.next_event().await.is_some() {}
        let answer = (&mut self.done).await;
        self.cancel_on_drop = false;
        answer.unwrap_or_else(|_| Err(Error::InstanceLost("the execution was abandoned".into())))
    }

    /// Lets the execution go on without anyone waiting for it.
    pub fn detach(mut self) -> ExecutionId {
        self.cancel_on_drop = false;
        self.id.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            self.cancel();
        }
    }
}
