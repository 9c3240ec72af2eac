//! Many patterns, one pass over the text.

use regex_automata::{Input, PatternSet as Found, meta};

use super::Pattern;
use super::linear::{self, Alphabet};

/// Which of several patterns may be found in a text.
#[derive(Debug)]
pub struct PatternSet {
    regex: meta::Regex,
    /// The index of each pattern of the automaton among those that were given.
    indices: Vec<usize>,
}

impl PatternSet {
    /// Of those that an automaton can decide in ASCII; nothing if that is too few of them.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Option<Self> {
        let (indices, hirs): (Vec<usize>, Vec<_>) = patterns
            .into_iter()
            .enumerate()
            .filter_map(|(index, pattern)| {
                linear::translate(&pattern.node, Alphabet::Ascii).map(|hir| (index, hir))
            })
            .unzip();
        if hirs.len() < 2 {
            return None;
        }
        Some(Self {
            regex: linear::build(&hirs)?,
            indices,
        })
    }

    /// Indices of patterns that are not in the text, which must be ASCII.
    pub fn missing(&self, text: &str, mut is_missing: impl FnMut(usize)) {
        if text.is_empty() || !text.is_ascii() {
            return;
        }
        if !self.regex.is_match(text) {
            self.indices.iter().for_each(|index| is_missing(*index));
            return;
        }
        let mut found = Found::new(self.indices.len());
        self.regex
            .which_overlapping_matches(&Input::new(text), &mut found);
        for (id, index) in self.indices.iter().enumerate() {
            if !found.contains(regex_automata::PatternID::must(id)) {
                is_missing(*index);
            }
        }
    }
}
