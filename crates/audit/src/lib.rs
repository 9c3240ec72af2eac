//! Records of what was allowed, denied and attempted.

mod hash;
mod memory;
mod record;
pub mod tree;

pub use hash::Hash;
pub use memory::MemoryLog;
pub use record::{Event, Record, RecordError, Recorder};
