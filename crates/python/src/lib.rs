//! The native module of the Python package: `brig._native`. It has no interface for people; that is the
//! package around it, `python/brig`, which holds the types, the documentation and the exceptions.
//!
//! Everything that waits is an [`operation::Operation`]: the package waits for it, or awaits it. The interpreter
//! is never held meanwhile.

mod approver;
mod attach;
mod audit;
mod backends;
mod callback;
mod config;
mod doctor;
mod error;
mod execution;
mod forks;
mod operation;
mod owned;
mod policy;
mod receipts;
mod report;
mod request;
mod runtime;
mod sandbox;
mod scan;
mod session;
#[cfg(feature = "azure")]
mod tokens;
mod tools;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::attach::leave;
    #[pymodule_export]
    use crate::audit::audit_verify;
    #[pymodule_export]
    use crate::backends::backends;
    #[pymodule_export]
    use crate::callback::Call;
    #[pymodule_export]
    use crate::doctor::doctor;
    #[pymodule_export]
    use crate::execution::Execution;
    #[pymodule_export]
    use crate::forks::owner_streams;
    #[pymodule_export]
    use crate::operation::Operation;
    #[pymodule_export]
    use crate::policy::{Policy, explain};
    #[pymodule_export]
    use crate::receipts::Receipts;
    #[pymodule_export]
    use crate::report::Report;
    #[pymodule_export]
    use crate::sandbox::Sandbox;
    #[pymodule_export]
    use crate::scan::scan_python;
    #[pymodule_export]
    use crate::session::Session;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
