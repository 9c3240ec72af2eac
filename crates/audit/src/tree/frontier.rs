use crate::Hash;

/// The right edge of a growing tree: all that is needed to go on, whatever its size.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Frontier {
    size: u64,
    /// Roots of the full subtrees, the largest first: one for each bit of `size`.
    peaks: Vec<Hash>,
}

impl Frontier {
    /// `peaks` are the roots of the full subtrees that `size` is made of, the largest first.
    pub fn new(size: u64, peaks: Vec<Hash>) -> Self {
        debug_assert_eq!(peaks.len(), size.count_ones() as usize);
        Self { size, peaks }
    }

    /// How many leaves the tree has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the full subtrees, the largest first.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds a leaf, and hands out the nodes that are now final: the leaf, then its ancestors.
    pub fn push(&mut self, leaf: Hash, mut stored: impl FnMut(&Hash)) {
        stored(&leaf);
        let mut node = leaf;
        for _ in 0..self.size.trailing_ones() {
            // One peak per set bit, so there is always one to merge with.
            if let Some(left) = self.peaks.pop() {
                node = Hash::node(&left, &node);
                stored(&node);
            }
        }
        self.peaks.push(node);
        self.size += 1;
    }

    /// The root of the tree over all leaves so far. For an empty tree, the hash of no data.
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else {
            return Hash::of(b"");
        };
        peaks.fold(*last, |right, left| Hash::node(left, &right))
    }
}
