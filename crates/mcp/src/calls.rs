//! How many calls are carried out at once, and how many may wait.

use brig_reason::ReasonCode;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::ToolError;

/// Each may use as much memory as the policy allows for one sandbox.
const AT_ONCE: usize = 8;
const WAITING: usize = 64;

#[derive(Debug)]
pub(crate) struct Calls {
    accepted: Semaphore,
    running: Semaphore,
}

/// The right to carry out a call.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _accepted: SemaphorePermit<'a>,
    _running: SemaphorePermit<'a>,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            accepted: Semaphore::new(AT_ONCE + WAITING),
            running: Semaphore::new(AT_ONCE),
        }
    }
}

impl Calls {
    /// Waits for a turn. Refused at once if too many wait.
    pub(crate) async fn turn(&self) -> Result<Turn<'_>, ToolError> {
        let busy = || {
            let problem = format!("{AT_ONCE} calls run and {WAITING} wait");
            ToolError::new(ReasonCode::McpBusy, problem).retryable()
        };
        let accepted = self.accepted.try_acquire().map_err(|_| busy())?;
        let running = self.running.acquire().await.map_err(|_| busy())?;
        Ok(Turn {
            _accepted: accepted,
            _running: running,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_too_much_is_refused_and_later_welcome() {
        let calls = Calls::default();
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(calls.turn().await.expect("a turn"));
        }
        let waiting: Vec<_> = (0..WAITING).map(|_| Box::pin(calls.turn())).collect();
        let mut waiting = polled(waiting).await;
        let refused = calls.turn().await.expect_err("too many");
        assert!(refused.retryable && refused.code == "mcp.busy");
        turns.clear();
        waiting.clear();
        calls.turn().await.expect("a turn");
    }

    /// Polls each once, so that it waits.
    async fn polled<F: Future + Unpin>(mut all: Vec<F>) -> Vec<F> {
        for one in &mut all {
            let is_pending = std::future::poll_fn(|context| {
                std::task::Poll::Ready(std::pin::Pin::new(&mut *one).poll(context).is_pending())
            });
            assert!(is_pending.await);
        }
        all
    }
}
