//! Finds calls in Python code that start processes.

use pyo3::prelude::*;

/// Line, column, pattern and message of each finding; and why the code could not be parsed, if it could not.
type Scan = (Vec<(u32, u32, String, String)>, Option<String>);

#[pyfunction]
pub(crate) fn scan_python(py: Python<'_>, code: &[u8]) -> Scan {
    let scan = py.detach(|| brig_code_scan::scan_python(code));
    let findings = scan.findings.into_iter();
    let findings = findings.map(|one| (one.line, one.column, one.pattern, one.message));
    (findings.collect(), scan.unparsable)
}
