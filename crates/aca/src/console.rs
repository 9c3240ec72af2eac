//! What a program writes, on its way to who reads it.

use brig_sandbox::backend::ExecSignal;
use brig_sandbox::{Event, Execution, KillReason, Output};
use bytes::Bytes;
use tokio::sync::mpsc;

/// What a program wrote, and where it goes.
pub(crate) struct Console {
    pub stdout: Output,
    pub stderr: Output,
    events: Option<mpsc::Sender<Event>>,
    most: u64,
    /// Too much output is an end.
    kills: bool,
    /// Output is read while the program runs.
    pub streamed: bool,
    /// A kill that came while a reader was waited for, or that follows from the output.
    pub pending: Option<KillReason>,
    pub killed: Option<KillReason>,
}

impl Console {
    /// Whether somebody, or a limit, wants output as it comes.
    pub(crate) fn is_read(&self) -> bool {
        self.events.is_some() || self.kills
    }

    pub(crate) fn new(execution: &mut Execution, kills: bool) -> Self {
        Self {
            // Before the events are taken.
            streamed: execution.events.is_some() || kills,
            stdout: Output::default(),
            stderr: Output::default(),
            events: execution.events.take(),
            most: execution.output_bytes,
            kills,
            pending: None,
            killed: None,
        }
    }

    pub(crate) async fn take(
        &mut self,
        piece: Bytes,
        stderr: bool,
        signals: &mut mpsc::UnboundedReceiver<ExecSignal>,
    ) {
        if piece.is_empty() {
            return;
        }
        let output = match stderr {
            true => &mut self.stderr,
            false => &mut self.stdout,
        };
        let room = self.most.saturating_sub(output.bytes.len() as u64);
        let kept = piece.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        output.bytes.extend_from_slice(&piece[..kept]);
        output.total += piece.len() as u64;
        if self.kills && output.total > self.most && self.killed.is_none() {
            self.pending = Some(KillReason::Output {
                limit_bytes: self.most,
            });
        }
        let event = match stderr {
            true => Event::Stderr(piece),
            false => Event::Stdout(piece),
        };
        self.send(event, signals).await;
    }

    /// Waits for a slow reader, but not if the execution is to end.
    pub(crate) async fn send(
        &mut self,
        event: Event,
        signals: &mut mpsc::UnboundedReceiver<ExecSignal>,
    ) {
        let Some(events) = &self.events else {
            return;
        };
        let reason = tokio::select! {
            biased;
            _ = events.send(event) => return,
            reason = killed(signals) => reason,
        };
        self.pending = Some(reason);
        self.events = None;
    }
}

async fn killed(signals: &mut mpsc::UnboundedReceiver<ExecSignal>) -> KillReason {
    loop {
        match signals.recv().await {
            Some(ExecSignal::Kill(reason)) => return reason,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}
