//! How threads of the runtime reach the interpreter, and how they are kept away from it when it ends: a thread that is
//! in it then brings the process down.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Not a lock: a child after a fork must not find it locked by a thread that it does not have.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How long the end waits for a Python function that does not return.
const PATIENCE: Duration = Duration::from_secs(10);

struct Inside;

impl Inside {
    fn enter() -> Option<Self> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Self;
        (!CLOSED.load(Ordering::SeqCst)).then_some(inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for the interpreter and does the work. `None` if it ends.
pub(crate) fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _inside = Inside::enter()?;
    Python::try_attach(work)
}

/// In a child after a fork: none of the threads that were inside are there.
pub(crate) fn forget_threads() {
    INSIDE.store(0, Ordering::SeqCst);
}

/// Before the interpreter ends: no thread enters any more, and those inside leave.
#[pyfunction]
pub(crate) fn leave(py: Python<'_>) {
    CLOSED.store(true, Ordering::SeqCst);
    py.detach(|| {
        let begun = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
