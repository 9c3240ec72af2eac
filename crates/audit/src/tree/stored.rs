//! Where each node lies in a list that only grows: after every leaf come the subtrees it completes.

/// The place of a node of a full subtree.
pub fn stored_index(level: u32, index: u64) -> u64 {
    // A node comes right after the nodes along its right edge.
    let mut leaf = ((index + 1) << level) - 1;
    let mut place = u64::from(level);
    while leaf > 0 {
        place += leaf;
        leaf >>= 1;
    }
    place
}

/// How many nodes a tree of this size has in the list.
pub fn stored_count(size: u64) -> u64 {
    2 * size - u64::from(size.count_ones())
}
