//! The patterns that an automaton can decide, in time linear in the text. Only whether there is a
//! match matters here, so that greediness and groups fall away.

use regex_automata::{MatchKind, meta};
use regex_syntax::hir::{self, Class, Hir, Repetition};

use super::ast::{At, Node, Set, Style, ascii_only};

/// Most texts are ASCII, for which automata are small and know what a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    Ascii,
    Unicode,
}

/// Larger automata are not worth their memory.
const NFA_LIMIT: usize = 4 << 20;
const CACHE: usize = 1 << 20;

/// With several patterns, all that match are reported.
pub(super) fn build(patterns: &[Hir]) -> Option<meta::Regex> {
    let config = meta::Config::new()
        .match_kind(MatchKind::All)
        .utf8_empty(true)
        .nfa_size_limit(Some(NFA_LIMIT))
        .hybrid_cache_capacity(CACHE)
        .which_captures(regex_automata::nfa::thompson::WhichCaptures::None);
    meta::Builder::new()
        .configure(config)
        .build_many_from_hir(patterns)
        .ok()
}

/// Nothing if no automaton can decide it.
pub(super) fn translate(node: &Node, alphabet: Alphabet) -> Option<Hir> {
    Translator { alphabet }.node(node, true)
}

struct Translator {
    alphabet: Alphabet,
}

impl Translator {
    /// `last`: nothing follows the node in the pattern.
    fn node(&self, node: &Node, last: bool) -> Option<Hir> {
        Some(match node {
            Node::Empty => Hir::empty(),
            Node::Set(set) => self.set(set),
            Node::At(at) => self.at(*at, last)?,
            Node::Concat(nodes) => {
                let end = nodes.len() - 1;
                let parts: Option<Vec<Hir>> = (nodes.iter().enumerate())
                    .map(|(i, node)| self.node(node, last && i == end))
                    .collect();
                Hir::concat(parts?)
            }
            Node::Alternation(nodes) => {
                let parts: Option<Vec<Hir>> =
                    nodes.iter().map(|node| self.node(node, last)).collect();
                Hir::alternation(parts?)
            }
            Node::Repeat(repeat) if repeat.style != Style::Possessive => {
                Hir::repetition(Repetition {
                    min: repeat.min,
                    max: repeat.max,
                    greedy: repeat.style == Style::Greedy,
                    sub: Box::new(self.node(&repeat.node, false)?),
                })
            }
            Node::Group { node, .. } => self.node(node, last)?,
            Node::Repeat(_)
            | Node::Reference { .. }
            | Node::Look(_)
            | Node::Atomic(_)
            | Node::If { .. } => return None,
        })
    }

    fn set(&self, set: &Set) -> Hir {
        let mut class = set.resolve();
        if self.alphabet == Alphabet::Ascii {
            class.intersect(&ascii_only());
        }
        Hir::class(Class::Unicode(class))
    }

    fn at(&self, at: At, last: bool) -> Option<Hir> {
        let look = match at {
            At::Start => hir::Look::Start,
            At::LineStart => hir::Look::StartLF,
            At::End => hir::Look::End,
            At::LineEnd => hir::Look::EndLF,
            At::EndOrLastNewline if last => {
                let newline = Hir::repetition(Repetition {
                    min: 0,
                    max: Some(1),
                    greedy: true,
                    sub: Box::new(Hir::literal(*b"\n")),
                });
                return Some(Hir::concat(vec![newline, Hir::look(hir::Look::End)]));
            }
            At::EndOrLastNewline => return None,
            // What a word is to Python, no automaton knows beyond ASCII.
            At::Word { .. } if self.alphabet == Alphabet::Unicode => return None,
            At::Word { negated: false, .. } => hir::Look::WordAscii,
            At::Word { negated: true, .. } => hir::Look::WordAsciiNegate,
        };
        Some(Hir::look(look))
    }
}
