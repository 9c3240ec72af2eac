//! Many patterns, one pass over the text.

use regex_automata::{Input, PatternSet as Found, meta};

use super::Pattern;
use super::linear::{self, Alphabet};

/// Which of several patterns may be found in a text.
#[derive(Debug)]
pub(crate) struct PatternSet {
    regex: meta::Regex,
    /// The place of each pattern of the automaton among those that were given.
    places: Vec<usize>,
}

impl PatternSet {
    /// Of those that an automaton can decide in ASCII; nothing if that is too few of them.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Option<Self> {
        let (places, hirs): (Vec<usize>, Vec<_>) = patterns
            .into_iter()
            .enumerate()
            .filter_map(|(place, pattern)| {
                linear::translate(&pattern.node, Alphabet::Ascii).map(|hir| (place, hir))
            })
            .unzip();
        if hirs.len() < 2 {
            return None;
        }
        Some(Self {
            regex: linear::build(&hirs)?,
            places,
        })
    }

    /// Places of patterns that are not in the text, which must be ASCII.
    pub fn missing(&self, text: &str, mut is_missing: impl FnMut(usize)) {
        if text.is_empty() || !text.is_ascii() {
            return;
        }
        if !self.regex.is_match(text) {
            self.places.iter().for_each(|place| is_missing(*place));
            return;
        }
        let mut found = Found::new(self.places.len());
        self.regex
            .which_overlapping_matches(&Input::new(text), &mut found);
        for (id, place) in self.places.iter().enumerate() {
            if !found.contains(regex_automata::PatternID::must(id)) {
                is_missing(*place);
            }
        }
    }
}
