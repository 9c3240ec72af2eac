//! What belongs to one process.

use pyo3::prelude::*;

use crate::error;
use crate::runtime::runtime;

/// A value with threads, descriptors and files of this process behind it. A forked child has a copy of it, which
/// it can neither use nor drop: dropping it would end what the parent still uses.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            process: std::process::id(),
            value: Some(value),
        }
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.process == std::process::id() => Ok(value),
            _ => Err(error::forked(py)),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.process != std::process::id() {
            std::mem::forget(value);
            return;
        }
        // What is dropped may have to be ended in the background. Threads of the runtime are in it already.
        let runtime = match tokio::runtime::Handle::try_current() {
            Ok(_) => None,
            Err(_) => Python::try_attach(runtime).and_then(Result::ok),
        };
        let _entered = runtime.map(|runtime| runtime.enter());
        drop(value);
    }
}
