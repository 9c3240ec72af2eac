//! The answer to an execution.

use brig_sandbox::KillReason;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What the package makes a `Result` of. What is rarely looked at is made when it is asked for.
#[pyclass(frozen, module = "brig._native")]
#[derive(Debug)]
pub(crate) struct Report(pub(crate) brig_sandbox::Report);

#[pymethods]
impl Report {
    #[getter]
    fn success(&self) -> bool {
        self.0.outcome.success()
    }

    #[getter]
    fn status(&self) -> &'static str {
        self.0.status().name()
    }

    #[getter]
    fn exit_code(&self) -> i32 {
        self.0.outcome.exit_code
    }

    #[getter]
    fn stdout<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.outcome.stdout.bytes)
    }

    #[getter]
    fn stderr<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.outcome.stderr.bytes)
    }

    #[getter]
    fn truncated(&self) -> (bool, bool) {
        let outcome = &self.0.outcome;
        (outcome.stdout.truncated(), outcome.stderr.truncated())
    }

    #[getter]
    fn duration(&self) -> f64 {
        self.0.outcome.duration.as_secs_f64()
    }

    #[getter]
    fn killed(&self) -> Option<&'static str> {
        self.0.outcome.killed.as_ref().map(KillReason::name)
    }

    #[getter]
    fn cpu_seconds(&self) -> f64 {
        self.0.outcome.usage.cpu.as_secs_f64()
    }

    #[getter]
    fn peak_memory_bytes(&self) -> u64 {
        self.0.outcome.usage.peak_memory_bytes
    }

    #[getter]
    fn execution_id(&self) -> &str {
        self.0.execution_id.as_str()
    }

    #[getter]
    fn session_id(&self) -> &str {
        self.0.session_id.as_str()
    }

    #[getter]
    fn agent_id(&self) -> &str {
        self.0.agent_id.as_str()
    }

    #[getter]
    fn backend(&self) -> String {
        self.0.backend.to_string()
    }

    /// The documented object of `--json`.
    fn json(&self) -> String {
        self.0.to_json().to_string()
    }
}
