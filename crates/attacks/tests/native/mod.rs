//! The ground of the native backend.

use std::sync::Arc;

use brig_attacks::Ground;

pub fn ground() -> Ground {
    Ground::new(
        Arc::new(brig_native::NativeBackend::new()),
        env!("CARGO_BIN_EXE_owner"),
    )
}
