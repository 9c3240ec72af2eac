//! Records of what was allowed, denied and attempted.

#![warn(missing_docs)]

pub mod canonical;
pub mod escape;
pub mod export;
pub mod fit;
mod flood;
mod hash;
pub mod head;
pub mod line;
pub mod log;
mod memory;
pub mod note;
mod pending;
pub mod proof;
pub mod prune;
/// Receipts: the summary of one execution.
pub mod receipt;
mod record;
pub mod tag;
pub mod tree;
pub mod verify;
pub mod view;

pub use hash::Hash;
pub use head::Head;
pub use log::{Durability, Log, LogError, Options};
pub use memory::MemoryLog;
pub use pending::Pending;
pub use proof::{Proof, Proved};
pub use receipt::{Receipt, Verdict};
pub use record::{
    Approval, ApprovalOutcome, ApprovalRequested, Carried, Command, Egress, Event, Record,
    RecordError, Recorder, Times, Tool,
};
