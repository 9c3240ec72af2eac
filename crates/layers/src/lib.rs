//! Saved states of a workspace, as host directories that can be stacked on one another.
//!
//! A layer is what an overlay keeps in its upper directory: files, directories and links, a character
//! device 0:0 for each name that was removed, and an attribute on each directory that hides what lies
//! below it. A layer never changes once it has its name, which is the digest of all it contains.
//! Layers share file contents by hard links, so nothing here ever writes to an existing file.

mod accesses;
mod copy;
mod digest;
mod link;
mod mark;
mod merge;
mod mirror;
mod part;
mod reading;
mod stacked;
mod walk;

pub use accesses::Accesses;
pub use digest::{Summary, hex, summarize};
pub use link::link_tree;
pub use merge::merge;
pub use mirror::{MirrorStats, NEXT, Unchanged, mirror, mirror_seen};
pub use stacked::stacked;
pub use walk::usage;

/// Deeper trees are refused: every level costs two descriptors while it is walked.
const MAX_DEPTH: usize = 128;
/// More entries are refused: they are counted, not trusted.
pub const MAX_ENTRIES: u64 = 1_000_000;

#[cfg(test)]
mod tests;
