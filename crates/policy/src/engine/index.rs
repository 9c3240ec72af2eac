//! Everything that rules look for in the text of one field, found in one pass.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, MatchKind};
use brig_python_semantics::{Pattern, PatternSet, Value};

/// What a rule needs in the text of its field to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    Needle,
    /// A match of a pattern without a needle.
    Loose,
    /// Nothing that is searched for in advance.
    Nothing,
}

/// What the rules search for in one field.
#[derive(Debug, Default)]
pub(super) struct Index {
    name: String,
    needles: Vec<String>,
    places: HashMap<String, usize>,
    /// Patterns that can match without any text that is known beforehand.
    loose: Vec<Arc<Pattern>>,
    /// Built when first needed. Nothing if it could not be: then nothing is ruled out.
    any: OnceLock<Option<AhoCorasick>>,
    all: OnceLock<Option<AhoCorasick>>,
    set: OnceLock<Option<PatternSet>>,
}

impl Index {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The number of a text that must not be empty.
    pub(super) fn needle(&mut self, text: &str) -> usize {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.needles.len();
        self.needles.push(text.into());
        self.places.insert(text.into(), place);
        place
    }

    pub(super) fn loose(&mut self, pattern: &Arc<Pattern>) -> usize {
        self.loose.push(pattern.clone());
        self.loose.len() - 1
    }

    fn find(&self, text: &str) -> Found {
        // Most often nothing is found, and that is learnt fastest.
        let any = self
            .any
            .get_or_init(|| build(&self.needles, MatchKind::LeftmostFirst));
        match any {
            Some(any) if !any.is_match(text) => return Found::None,
            Some(_) => {}
            None => return Found::Unknown,
        }
        let all = self
            .all
            .get_or_init(|| build(&self.needles, MatchKind::Standard));
        let Some(all) = all else {
            return Found::Unknown;
        };
        let mut bits = Bits::new(self.needles.len());
        let mut left = self.needles.len();
        for hit in all.find_overlapping_iter(text) {
            if bits.set(hit.pattern().as_usize()) {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        Found::Some(bits)
    }

    fn missing(&self, text: &str) -> Missing {
        let mut missing = Bits::new(self.loose.len());
        let mut count = 0;
        let set = self
            .set
            .get_or_init(|| PatternSet::new(self.loose.iter().map(|pattern| &**pattern)));
        if let Some(set) = set {
            set.missing(text, |place| count += usize::from(missing.set(place)));
        }
        Missing {
            all: count == self.loose.len(),
            bits: missing,
        }
    }
}

fn build(needles: &[String], kind: MatchKind) -> Option<AhoCorasick> {
    AhoCorasick::builder().match_kind(kind).build(needles).ok()
}

/// One field of one context, with what was found in it so far.
#[derive(Debug)]
pub(super) struct Seen<'c> {
    pub value: Option<&'c Value>,
    text: OnceCell<Cow<'c, str>>,
    found: OnceCell<Found>,
    missing: OnceCell<Missing>,
}

impl<'c> Seen<'c> {
    pub(super) fn new(value: Option<&'c Value>) -> Self {
        Self {
            value: value.filter(|value| !matches!(value, Value::Null)),
            text: OnceCell::new(),
            found: OnceCell::new(),
            missing: OnceCell::new(),
        }
    }

    /// `str()` of the value.
    pub(super) fn text(&self) -> &str {
        self.text
            .get_or_init(|| self.value.map(Value::to_text).unwrap_or_default())
    }

    /// Whether no rule with this search can match: the field is missing, or nothing of it is in the text.
    pub(super) fn rules_out(&self, search: Search, index: &Index) -> bool {
        match (self.value, search) {
            (_, Search::Nothing) => false,
            (None, _) => true,
            // `contains` of anything but a text is not a search.
            (Some(Value::Text(_)), Search::Needle) => matches!(self.found(index), Found::None),
            (Some(_), Search::Needle) => false,
            (Some(_), Search::Loose) => self.missing(index).all,
        }
    }

    fn missing(&self, index: &Index) -> &Missing {
        self.missing.get_or_init(|| index.missing(self.text()))
    }

    fn found(&self, index: &Index) -> &Found {
        self.found.get_or_init(|| index.find(self.text()))
    }

    /// Nothing if that is not known.
    pub(super) fn has_needle(&self, index: &Index, needle: usize) -> Option<bool> {
        match self.found(index) {
            Found::None => Some(false),
            Found::Some(bits) => Some(bits.get(needle)),
            Found::Unknown => None,
        }
    }

    /// Whether a loose pattern is known not to match.
    pub(super) fn lacks(&self, index: &Index, loose: usize) -> bool {
        self.missing(index).bits.get(loose)
    }
}

#[derive(Debug)]
enum Found {
    None,
    Some(Bits),
    Unknown,
}

/// Loose patterns that are known not to match.
#[derive(Debug)]
struct Missing {
    bits: Bits,
    all: bool,
}

#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Whether it was not set before.
    fn set(&mut self, at: usize) -> bool {
        let (word, bit) = (at / 64, 1 << (at % 64));
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn get(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }
}
