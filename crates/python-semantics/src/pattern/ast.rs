//! A pattern as a tree. Flags are gone: each node carries what they meant for it.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::case;
use crate::unicode;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Empty,
    Set(Set),
    At(At),
    Concat(Vec<Node>),
    Alternation(Vec<Node>),
    Repeat(Repeat),
    Group {
        index: Option<usize>,
        node: Box<Node>,
    },
    Reference {
        group: usize,
        fold: Fold,
    },
    Look(Look),
    Atomic(Box<Node>),
    /// `(?(1)yes|no)`.
    If {
        group: usize,
        yes: Box<Node>,
        no: Box<Node>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub node: Box<Node>,
    pub min: u32,
    pub max: Option<u32>,
    pub style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Debug)]
pub(super) struct Look {
    /// How many characters to go back; nothing to look ahead.
    pub behind: Option<usize>,
    pub negative: bool,
    pub node: Box<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// `\A`, and `^` without the flag `m`.
    Start,
    LineStart,
    /// `\Z`.
    End,
    /// `$` without the flag `m`: the end, or before a newline that ends the text.
    EndOrLastNewline,
    LineEnd,
    Word {
        ascii: bool,
        negated: bool,
    },
}

/// Which characters count as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    None,
    Ascii,
    Unicode,
}

/// One character out of many.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub items: Vec<Item>,
    pub negated: bool,
    pub fold: Fold,
}

/// Code points are kept as numbers: a pattern may name surrogates, which no text contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Range(u32, u32),
    Class {
        class: Class,
        negated: bool,
        ascii: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Digit,
    Space,
    Word,
}

impl Set {
    pub(super) fn literal(code: u32, fold: Fold) -> Self {
        Self {
            items: vec![Item::Range(code, code)],
            negated: false,
            fold,
        }
    }

    /// The one character that matches, if there is only one.
    pub(super) fn single(&self) -> Option<char> {
        match self.items.as_slice() {
            [Item::Range(start, end)] if start == end && !self.negated => {
                let c = char::from_u32(*start)?;
                let alone = match self.fold {
                    Fold::None => true,
                    Fold::Ascii => !c.is_ascii_alphabetic(),
                    Fold::Unicode => case::stands_alone(c),
                };
                alone.then_some(c)
            }
            _ => None,
        }
    }

    pub(super) fn resolve(&self) -> ClassUnicode {
        let mut set = ClassUnicode::empty();
        for item in &self.items {
            if let Item::Range(start, end) = *item {
                push(&mut set, start, end);
            }
        }
        match self.fold {
            Fold::None => {}
            Fold::Ascii => case::fold_ascii(&mut set),
            Fold::Unicode => case::fold(&mut set),
        }
        for item in &self.items {
            if let Item::Class {
                class,
                negated,
                ascii,
            } = *item
            {
                let mut class = class.resolve(ascii);
                if negated {
                    class.negate();
                }
                set.union(&class);
            }
        }
        if self.negated {
            set.negate();
        }
        set
    }
}

impl Class {
    fn resolve(self, ascii: bool) -> ClassUnicode {
        let mut class = match self {
            Class::Digit => unicode::DIGIT.clone(),
            Class::Space => unicode::SPACE.clone(),
            Class::Word => unicode::WORD.clone(),
        };
        if ascii {
            class.intersect(&ascii_only());
            // With the flag `a`, the separators of ASCII are no space.
            if self == Class::Space {
                class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\x1c', '\x1f')]));
            }
        }
        class
    }
}

pub(super) fn ascii_only() -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')])
}

fn push(set: &mut ClassUnicode, start: u32, end: u32) {
    // Around the surrogates, which are no characters.
    for (start, end) in [(start, end.min(0xd7ff)), (start.max(0xe000), end)] {
        if start <= end
            && let (Some(start), Some(end)) = (char::from_u32(start), char::from_u32(end))
        {
            set.push(ClassUnicodeRange::new(start, end));
        }
    }
}
