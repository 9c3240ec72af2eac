//! Work that takes time: waited for by a thread, or awaited by an event loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brig_sandbox::Error;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::attach::attach;
use crate::error;
use crate::owned::Owned;
use crate::runtime::runtime;

/// How long a signal such as that of Ctrl-C may wait for a thread that waits.
const SIGNALS: Duration = Duration::from_millis(50);

/// Makes the answer, once the interpreter is there for it.
type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Work that begins when it is waited for or started, and that ends when nobody wants it any more.
#[pyclass(frozen, module = "brig._native")]
pub(crate) struct Operation(Owned<Mutex<State>>);

enum State {
    New(Work),
    Started(AbortHandle),
    Taken,
}

impl Operation {
    pub(crate) fn new<T>(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self
    where
        T: Send + 'static + for<'py> IntoPyObjectExt<'py>,
    {
        Self::with(work, |py, value: T| value.into_py_any(py))
    }

    /// The same, with a function that makes the answer.
    pub(crate) fn with<T: Send + 'static>(
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        answer: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work = async move {
            let result = work.await;
            let made = move |py: Python<'_>| match result {
                Ok(value) => answer(py, value),
                Err(failed) => Err(error::raise(py, failed)),
            };
            Box::new(made) as Answer
        };
        Self(Owned::new(Mutex::new(State::New(Box::pin(work)))))
    }

    fn state(&self, py: Python<'_>) -> PyResult<std::sync::MutexGuard<'_, State>> {
        let state = self.0.get(py)?;
        Ok(state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, py: Python<'_>) -> PyResult<Work> {
        let mut state = self.state(py)?;
        match std::mem::replace(&mut *state, State::Taken) {
            State::New(work) => Ok(work),
            other => {
                *state = other;
                Err(PyRuntimeError::new_err("an operation runs only once"))
            }
        }
    }
}

#[pymethods]
impl Operation {
    /// Waits for the answer. A signal handler that raises ends the work.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut work = self.take(py)?;
        let runtime = runtime(py)?;
        loop {
            let waited = py.detach(|| {
                runtime.block_on(async { tokio::time::timeout(SIGNALS, &mut work).await })
            });
            if let Ok(answer) = waited {
                return answer(py);
            }
            if let Err(raised) = py.check_signals() {
                py.detach(|| {
                    let _entered = runtime.enter();
                    drop(work);
                });
                return Err(raised);
            }
        }
    }

    /// Starts the work. `done` is called in another thread with the answer and None, or None and an exception.
    fn start(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<()> {
        let work = self.take(py)?;
        let task = runtime(py)?.spawn(async move {
            let answer = work.await;
            // Waiting for the interpreter must not hold up what keeps to deadlines.
            let told = tokio::task::spawn_blocking(move || {
                attach(|py| {
                    let told = match answer(py) {
                        Ok(value) => done.call1(py, (value, py.None())),
                        Err(raised) => done.call1(py, (py.None(), raised)),
                    };
                    if let Err(raised) = told {
                        raised.write_unraisable(py, None);
                    }
                })
            });
            // Fails only when the process ends.
            let _ = told.await;
        });
        *self.state(py)? = State::Started(task.abort_handle());
        Ok(())
    }

    /// Ends the work, if it was started and has not answered yet.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        if let State::Started(task) = &*self.state(py)? {
            task.abort();
        }
        Ok(())
    }
}
