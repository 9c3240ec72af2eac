//! What a child has copies of after a fork.

use pyo3::prelude::*;

/// Descriptors that a forked child closes, so that sandboxes don't outlive the parent that they belong to.
#[pyfunction]
pub(crate) fn owner_streams() -> Vec<i32> {
    brig_native::owner_streams()
}
