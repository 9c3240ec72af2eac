//! A running execution, read as it goes.

use std::sync::Arc;

use brig_sandbox::{Error, Event, ExecSignal, ExecutionHandle, KillReason};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::operation::Operation;
use crate::owned::Owned;
use crate::report::Report;

type Done = oneshot::Receiver<Result<brig_sandbox::Report, Error>>;

/// Dropping it ends the execution.
#[pyclass(frozen, module = "brig._native")]
#[derive(Debug)]
pub(crate) struct Execution {
    id: String,
    inner: Owned<Inner>,
}

#[derive(Debug)]
struct Inner {
    signals: mpsc::UnboundedSender<ExecSignal>,
    events: Arc<Mutex<mpsc::Receiver<Event>>>,
    done: Arc<Mutex<Done>>,
}

impl Execution {
    /// Must be called within the runtime.
    pub(crate) fn new(handle: ExecutionHandle) -> Self {
        let (signals, signalled) = mpsc::unbounded_channel();
        // One event at a time, so that a slow reader slows the program down.
        let (sender, events) = mpsc::channel(1);
        let (answer, done) = oneshot::channel();
        let id = handle.id().to_string();
        tokio::spawn(drive(handle, signalled, sender, answer));
        Self {
            id,
            inner: Owned::new(Inner {
                signals,
                events: Arc::new(Mutex::new(events)),
                done: Arc::new(Mutex::new(done)),
            }),
        }
    }

    fn send(&self, py: Python<'_>, signal: ExecSignal) -> PyResult<()> {
        // Fails only if the execution has ended.
        let _ = self.inner.get(py)?.signals.send(signal);
        Ok(())
    }
}

#[pymethods]
impl Execution {
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// The next piece of output: the name of its stream and its bytes. None at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Operation> {
        let events = Arc::clone(&self.inner.get(py)?.events);
        let next = async move {
            loop {
                match events.lock().await.recv().await {
                    Some(Event::Stdout(bytes)) => return Ok(Some(("stdout", bytes))),
                    Some(Event::Stderr(bytes)) => return Ok(Some(("stderr", bytes))),
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
        };
        Ok(Operation::with(next, |py, event| {
            let event = event.map(|(stream, bytes)| (stream, PyBytes::new(py, &bytes)));
            Ok(event.into_pyobject(py)?.into_any().unbind())
        }))
    }

    /// The report, once. Output that was not read is dropped from the stream, not from the report.
    fn wait(&self, py: Python<'_>) -> PyResult<Operation> {
        let inner = self.inner.get(py)?;
        let (events, done) = (Arc::clone(&inner.events), Arc::clone(&inner.done));
        Ok(Operation::new(async move {
            events.lock().await.close();
            let mut done = done.lock().await;
            let answer = (&mut *done).await;
            let lost = |_| Err(Error::InstanceLost("the execution was abandoned".into()));
            answer.unwrap_or_else(lost).map(Report)
        }))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.send(py, ExecSignal::Kill(KillReason::Cancelled))
    }

    fn signal(&self, py: Python<'_>, number: i32) -> PyResult<()> {
        self.send(py, ExecSignal::Posix(number))
    }
}

/// Passes events and signals on until the execution has ended.
async fn drive(
    mut handle: ExecutionHandle,
    mut signals: mpsc::UnboundedReceiver<ExecSignal>,
    events: mpsc::Sender<Event>,
    answer: oneshot::Sender<Result<brig_sandbox::Report, Error>>,
) {
    let mut wanted = true;
    let mut permit = None;
    loop {
        tokio::select! {
            signal = signals.recv(), if wanted => wanted = obey(&handle, signal),
            reserved = events.reserve(), if permit.is_none() => match reserved {
                Ok(reserved) => permit = Some(reserved),
                Err(_) => break,
            },
            () = events.closed() => break,
            event = handle.next_event(), if permit.is_some() => match (event, permit.take()) {
                (Some(event), Some(permit)) => permit.send(event),
                _ => break,
            },
        }
    }
    let report = loop {
        tokio::select! {
            signal = signals.recv(), if wanted => wanted = obey(&handle, signal),
            report = handle.report() => break report,
        }
    };
    // Nobody waits any more if this fails. The stream ends after it.
    let _ = answer.send(report);
}

/// False if nobody wants the execution any more, which ends it.
fn obey(handle: &ExecutionHandle, signal: Option<ExecSignal>) -> bool {
    let wanted = signal.is_some();
    match signal {
        Some(ExecSignal::Posix(number)) => handle.signal(number),
        Some(ExecSignal::Resize(size)) => handle.resize(size),
        Some(ExecSignal::Kill(_)) | None => handle.cancel(),
    }
    wanted
}
