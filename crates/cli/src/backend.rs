//! The isolation technologies this binary was built with.

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::Backend;

use crate::failure::Failure;

/// Names that mean something, whether built in or not.
const KNOWN: [&str; 4] = ["native", "docker", "microvm", "aca"];

/// Every one that is built in.
pub fn all() -> Vec<Arc<dyn Backend>> {
    vec![Arc::new(NativeBackend::new())]
}

pub fn choose(name: &str) -> Result<Arc<dyn Backend>, Failure> {
    if name == "native" {
        return Ok(Arc::new(NativeBackend::new()));
    }
    let failure = if KNOWN.contains(&name) {
        Failure::new(
            "backend.unavailable",
            format!("the {name} backend is not part of this build of brig"),
        )
    } else {
        Failure::new("backend.unknown", format!("no backend is called `{name}`"))
    };
    Err(failure.with_hint("this build has: native"))
}
