//! The nodes of the tree on disk. They can be made again from the records, so they need no care.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::Hash;
use crate::tree::{Frontier, Nodes, stored_count, stored_index};

pub(crate) const NAME: &str = "nodes";

/// How long the file is after the first record.
pub(crate) const OF_ONE_RECORD: u64 = 32;

#[derive(Debug)]
pub(crate) struct NodeFile(pub File);

impl Nodes for NodeFile {
    fn node(&self, level: u32, index: u64) -> io::Result<Hash> {
        let mut hash = [0; 32];
        self.0
            .read_exact_at(&mut hash, stored_index(level, index) * 32)?;
        Ok(Hash(hash))
    }
}

impl NodeFile {
    /// Writes the nodes that come after those of a tree of `size`.
    pub(crate) fn write(&self, size: u64, nodes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(nodes, stored_count(size) * 32)
    }

    /// Puts the roots of full subtrees into their places, with nothing in between.
    pub(crate) fn write_peaks(&self, frontier: &Frontier) -> io::Result<()> {
        for (place, peak) in stored_peaks(frontier) {
            self.0.write_all_at(&peak.0, place * 32)?;
        }
        self.0.set_len(stored_count(frontier.size()) * 32)
    }

    pub(crate) fn leaf(&self, index: u64) -> io::Result<Hash> {
        self.node(0, index)
    }

    pub(crate) fn frontier(&self, size: u64) -> io::Result<Frontier> {
        let mut peaks = Vec::new();
        let mut start = 0_u64;
        for level in (0..u64::BITS).rev() {
            if size >> level & 1 == 1 {
                peaks.push(self.node(level, start >> level)?);
                start += 1 << level;
            }
        }
        Ok(Frontier::new(size, peaks))
    }
}

/// The roots of the full subtrees of a tree, with their places in the file.
pub(crate) fn stored_peaks(frontier: &Frontier) -> Vec<(u64, Hash)> {
    let mut start = 0_u64;
    let levels = (0..u64::BITS)
        .rev()
        .filter(|level| frontier.size() >> level & 1 == 1);
    levels
        .zip(frontier.peaks())
        .map(|(level, peak)| {
            let place = stored_index(level, start >> level);
            start += 1 << level;
            (place, *peak)
        })
        .collect()
}
