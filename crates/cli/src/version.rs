//! What this build is: version, commit, backends, C library.

use serde_json::{Value, json};

use crate::backend::KINDS;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Ends in `-dirty` if the sources differ from the commit. Absent outside a checkout.
const COMMIT: Option<&str> = option_env!("BRIG_COMMIT");

fn backends() -> Vec<&'static str> {
    KINDS.iter().map(|entry| entry.kind.name).collect()
}

/// The C library. A static program needs none of the machine, and resolves names by itself.
const LIBC: &str = if cfg!(target_env = "musl") {
    "musl"
} else {
    "glibc"
};
const STATIC: bool = cfg!(target_feature = "crt-static");

/// `0.1.0 (0123456789, native docker, static musl)`
pub(crate) fn text() -> String {
    let commit = COMMIT
        .map(|commit| format!("{commit}, "))
        .unwrap_or_default();
    let linked = if STATIC { "static " } else { "" };
    format!(
        "{VERSION} ({commit}{}, {linked}{LIBC})",
        backends().join(" ")
    )
}

pub(crate) fn json() -> Value {
    json!({
        "version": VERSION,
        "commit": COMMIT,
        "backends": backends(),
        "libc": LIBC,
        "static": STATIC,
    })
}
