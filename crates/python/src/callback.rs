//! Calls of Python functions from the runtime.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::attach::attach;

/// One call of a function. A function that can be stopped registers how.
#[pyclass(frozen, module = "brig._native")]
#[derive(Debug, Default)]
pub(crate) struct Call(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Running,
    Stoppable(Py<PyAny>),
    Unwanted,
}

#[pymethods]
impl Call {
    /// `stop` is called, in another thread, when the answer is no longer wanted.
    fn on_unwanted(&self, py: Python<'_>, stop: Py<PyAny>) -> PyResult<()> {
        let unwanted = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match &*state {
                State::Unwanted => true,
                _ => {
                    *state = State::Stoppable(stop.clone_ref(py));
                    false
                }
            }
        };
        if unwanted {
            stop.call0(py)?;
        }
        Ok(())
    }
}

/// While it lives, the answer is wanted.
struct Wanted(Arc<Py<Call>>);

impl Drop for Wanted {
    fn drop(&mut self) {
        let call = Arc::clone(&self.0);
        let stop = move || {
            attach(|py| {
                let mut state = call.get().0.lock().unwrap_or_else(PoisonError::into_inner);
                let before = std::mem::replace(&mut *state, State::Unwanted);
                drop(state);
                if let State::Stoppable(stop) = before
                    && let Err(raised) = stop.call0(py)
                {
                    raised.write_unraisable(py, None);
                }
            });
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(stop);
        }
    }
}

/// Calls `function(text, call)` in a thread of its own. `None` if it raised, which is reported as unraisable, or if
/// the interpreter is about to end.
pub(crate) async fn call<T>(function: &Arc<Py<PyAny>>, text: String) -> Option<T>
where
    T: for<'a, 'py> FromPyObject<'a, 'py> + Send + 'static,
{
    let made = tokio::task::spawn_blocking(|| {
        attach(|py| Py::new(py, Call::default()).ok().map(Arc::new)).flatten()
    });
    let call = made.await.ok().flatten()?;
    let wanted = Wanted(Arc::clone(&call));
    let function = Arc::clone(function);
    let called = tokio::task::spawn_blocking(move || {
        attach(|py| {
            let answer = function.call1(py, (text, call.clone_ref(py)));
            match answer.and_then(|answer| answer.extract::<T>(py).map_err(Into::into)) {
                Ok(answer) => Some(answer),
                Err(raised) => {
                    raised.write_unraisable(py, None);
                    None
                }
            }
        })
        .flatten()
    });
    let answer = called.await.ok().flatten();
    drop(wanted);
    answer
}
