//! AGT's chain: its own results, and receipts of a log.

mod chain;
#[allow(
    dead_code,
    reason = "shared with the tests of audit, which use the rest"
)]
#[path = "../../../audit/tests/integration/common/mod.rs"]
mod common;
mod export;
