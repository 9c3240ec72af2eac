//! The Merkle tree of RFC 6962: heads, inclusion and consistency proofs.
//!
//! Nodes are numbered by level (leaves are 0) and index within the level. Only full subtrees are
//! ever stored, so a stored node never changes.

mod frontier;
mod proof;
mod stored;

pub use frontier::Frontier;
pub use proof::{Nodes, consistency, inclusion, root, verify_consistency, verify_inclusion};
pub use stored::{stored_count, stored_index};

#[cfg(test)]
mod tests;
