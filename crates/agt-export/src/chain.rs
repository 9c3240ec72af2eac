use std::collections::HashMap;

use brig_audit::Hash;

use crate::entry::AgtEntry;
use crate::text::Text;

/// On which side of the path to the root a sibling is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    Left,
    Right,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// AGT's Merkle chain. It keeps one hash per entry and per inner node.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Hashes by level, leaves first. Nodes that no entry has reached yet are missing.
    levels: Vec<Vec<Hash>>,
    /// The first entry with each id.
    places: HashMap<Text, usize>,
}

impl Chain {
    /// Links an entry to the one before, hashes it, and adds it.
    pub fn add(&mut self, entry: &mut AgtEntry) {
        // The first entry keeps what it came with.
        if let Some(last) = self.levels.first().and_then(|leaves| leaves.last()) {
            entry.previous_hash = last.to_string().as_str().into();
        }
        let hash = Hash::of(entry.canonical().as_bytes());
        entry.entry_hash = hash.to_string();
        let index = self.levels.first().map_or(0, Vec::len);
        self.places.entry(entry.entry_id.clone()).or_insert(index);
        self.place(index, hash);
    }

    fn place(&mut self, leaf: usize, hash: Hash) {
        let mut at = leaf;
        let mut hash = hash;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let nodes = &mut self.levels[level];
            match nodes.get_mut(at) {
                Some(node) => *node = hash,
                None => nodes.push(hash),
            }
            // The root is the first level on which this leaf's ancestor is the leftmost.
            if leaf >> level == 0 {
                return;
            }
            let left = self.text(level, at & !1);
            let right = self.text(level, at | 1);
            hash = Hash::of(&[left, right].concat());
            at /= 2;
        }
    }

    /// Hashes are hashed as text. What is not there yet is 64 zeros, on every level.
    fn text(&self, level: usize, at: usize) -> [u8; 64] {
        let node = self.levels.get(level).and_then(|nodes| nodes.get(at));
        node.map_or([b'0'; 64], Hash::hex)
    }

    pub fn root(&self) -> Option<String> {
        let top = self.levels.last()?;
        top.first().map(Hash::to_string)
    }

    /// The siblings from the leaf up, as AGT looks for them: of the first entry with this id.
    pub fn proof(&self, entry_id: &Text) -> Option<Vec<(String, Side)>> {
        let mut at = *self.places.get(entry_id)?;
        let mut path = Vec::new();
        for level in 0..self.levels.len() - 1 {
            let side = if at % 2 == 0 { Side::Right } else { Side::Left };
            let text = self.text(level, at ^ 1);
            path.push((String::from_utf8_lossy(&text).into_owned(), side));
            at /= 2;
        }
        Some(path)
    }

    /// Whether a proof leads from an entry's hash to the root.
    pub fn verify_proof(entry_hash: &str, proof: &[(String, Side)], root: &str) -> bool {
        let up = |hash: String, (sibling, side): &(String, Side)| {
            let both = match side {
                Side::Left => format!("{sibling}{hash}"),
                Side::Right => format!("{hash}{sibling}"),
            };
            Hash::of(both.as_bytes()).to_string()
        };
        proof.iter().fold(entry_hash.to_owned(), up) == root
    }
}
