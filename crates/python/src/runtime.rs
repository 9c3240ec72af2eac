//! The async runtime of this process.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::attach::forget_threads;

/// With the process it belongs to. Locked only by a thread that holds the interpreter, as one that forks does:
/// so it is never locked in a child.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The runtime. A child after a fork has none of its parent's threads, and gets a runtime of its own.
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<&'static Runtime> {
    let mut current = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, runtime)) = *current
        && owner == process
    {
        return Ok(runtime);
    }
    if current.is_some() {
        forget_threads();
    }
    let runtime = Builder::new_multi_thread()
        .thread_name("brig")
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("async runtime: {error}")))?;
    // Until the end of the process: threads of the interpreter may use it until then.
    let runtime = &*Box::leak(Box::new(runtime));
    *current = Some((process, runtime));
    Ok(runtime)
}
