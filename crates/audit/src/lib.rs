//! Records of what was allowed, denied and attempted.

mod memory;
mod record;

pub use memory::MemoryLog;
pub use record::{Event, Record, RecordError, Recorder};
