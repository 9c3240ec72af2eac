use std::io;

use super::stored_index;
use crate::Hash;

/// Where the nodes of full subtrees can be read.
pub trait Nodes {
    /// The node at this level (leaves are 0) and index within the level. An error if it is not stored.
    fn node(&self, level: u32, index: u64) -> io::Result<Hash>;
}

/// In the order of [`stored_index`].
impl Nodes for Vec<Hash> {
    fn node(&self, level: u32, index: u64) -> io::Result<Hash> {
        let place = usize::try_from(stored_index(level, index)).ok();
        let node = place.and_then(|place| self.get(place));
        node.copied().ok_or_else(out_of_range)
    }
}

/// The root of the tree over the first `size` leaves.
pub fn root(nodes: &dyn Nodes, size: u64) -> io::Result<Hash> {
    if size == 0 {
        return Ok(Hash::of(b""));
    }
    range(nodes, 0, size)
}

/// RFC 6962, 2.1.1: the siblings on the way from a leaf to the root, the lowest first.
pub fn inclusion(nodes: &dyn Nodes, index: u64, size: u64) -> io::Result<Vec<Hash>> {
    if index >= size {
        return Err(out_of_range());
    }
    let (mut start, mut end) = (0, size);
    let mut path = Vec::new();
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            path.push(range(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(range(nodes, start, middle)?);
            start = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// RFC 6962, 2.1.2: that the tree over `old` leaves is a prefix of the tree over `new` leaves.
pub fn consistency(nodes: &dyn Nodes, old: u64, new: u64) -> io::Result<Vec<Hash>> {
    if old > new {
        return Err(out_of_range());
    }
    if old == 0 || old == new {
        return Ok(Vec::new());
    }
    let (mut start, mut end) = (0, new);
    let mut path = Vec::new();
    // Down to the subtree that ends where the old tree ended.
    while old != end {
        let middle = start + split(end - start);
        if old <= middle {
            path.push(range(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(range(nodes, start, middle)?);
            start = middle;
        }
    }
    // The verifier knows the old root itself.
    if start > 0 {
        path.push(range(nodes, start, end)?);
    }
    path.reverse();
    Ok(path)
}

/// The root of the subtree over `start..end`, where `start` is a boundary that splitting met.
fn range(nodes: &dyn Nodes, start: u64, end: u64) -> io::Result<Hash> {
    let mut at = end;
    let mut root: Option<Hash> = None;
    // From the smallest full subtree at the right to the largest at the left.
    while at > start {
        let level = at.trailing_zeros().min((at - start).ilog2());
        let node = nodes.node(level, (at >> level) - 1)?;
        root = Some(match root {
            None => node,
            Some(right) => Hash::node(&node, &right),
        });
        at -= 1 << level;
    }
    root.ok_or_else(out_of_range)
}

/// The largest power of two below `size`.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

fn out_of_range() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "outside of the tree")
}

/// RFC 9162, 2.1.3.2.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, path: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = Hash::node(sibling, &hash);
            // At the right edge, levels without a sibling are passed over.
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = Hash::node(&hash, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// RFC 9162, 2.1.4.2.
pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    new: u64,
    new_root: &Hash,
    path: &[Hash],
) -> bool {
    if old > new {
        return false;
    }
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    if old == 0 {
        return path.is_empty() && *old_root == Hash::of(b"");
    }
    let mut path = path.iter();
    let first = if old.is_power_of_two() {
        Some(old_root)
    } else {
        path.next()
    };
    let Some(first) = first else {
        return false;
    };
    let shift = (old - 1).trailing_ones();
    let (mut at, mut last) = ((old - 1) >> shift, (new - 1) >> shift);
    let (mut old_hash, mut new_hash) = (*first, *first);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            old_hash = Hash::node(sibling, &old_hash);
            new_hash = Hash::node(sibling, &new_hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = Hash::node(&new_hash, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == *old_root && new_hash == *new_root
}
