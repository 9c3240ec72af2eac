use serde::Serialize;

/// One thing that was looked at, for `brig doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub what: &'static str,
    pub good: bool,
    pub detail: String,
    /// What would mend it.
    pub mend: Option<String>,
}
