//! Instances that go on without the process that created them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// By what another process can join an instance, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Only the backend knows what it means.
    pub handle: String,
    /// The backend ends the instance then. Every use of the instance moves it.
    pub expires: Timestamp,
}
