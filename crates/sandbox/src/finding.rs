use serde::Serialize;

/// One thing that was looked at, for `brig doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// Whether it is as it should be.
    pub good: bool,
    /// What was found.
    pub detail: String,
    /// What would fix it.
    pub fix: Option<String>,
}
