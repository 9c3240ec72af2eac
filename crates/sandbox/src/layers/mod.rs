//! Saved states of a workspace, as folders of the host that can be stacked on one another.
//!
//! A layer is what an overlay keeps in its upper folder: files, folders and links, a character
//! device 0:0 for each name that was removed, and an attribute on each folder that hides what lies
//! below it. A layer never changes once it has its name, which is the digest of all it holds.
//! Layers share file contents by hard links, so nothing here ever writes to an existing file.

mod copy;
mod digest;
mod link;
mod mark;
mod merge;
mod mirror;
mod part;
mod reading;
mod walk;

pub use mirror::{MirrorStats, mirror};

pub(crate) use digest::{hex, summarize};
pub(crate) use link::link_tree;
pub(crate) use merge::merge;
pub(crate) use mirror::NEXT;
pub(crate) use walk::usage;

/// Deeper trees are refused: every level costs two descriptors while it is walked.
pub(crate) const MAX_DEPTH: usize = 128;
/// More entries are refused: they are counted, not trusted.
pub(crate) const MAX_ENTRIES: u64 = 1_000_000;

#[cfg(test)]
mod tests;
