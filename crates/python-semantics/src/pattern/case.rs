//! Which characters are equal when case is ignored. Python compares lower-case letters, and adds
//! those that share an upper-case one; that is simple case folding, but for the letter i.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// One letter to Python, three to Unicode.
const I: [char; 4] = ['i', 'I', '\u{130}', '\u{131}'];

pub(super) fn fold(set: &mut ClassUnicode) {
    set.try_case_fold_simple()
        .expect("the tables of Unicode are compiled in");
    if I.iter().any(|c| crate::unicode::contains(set, *c)) {
        for c in I {
            set.push(ClassUnicodeRange::new(c, c));
        }
    }
}

pub(super) fn fold_ascii(set: &mut ClassUnicode) {
    let mut ascii = set.clone();
    ascii.intersect(&super::ast::ascii_only());
    for range in ascii.ranges() {
        for c in range.start()..=range.end() {
            for c in [c.to_ascii_lowercase(), c.to_ascii_uppercase()] {
                set.push(ClassUnicodeRange::new(c, c));
            }
        }
    }
}

pub(super) fn stands_alone(c: char) -> bool {
    let mut set = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    fold(&mut set);
    set.ranges().len() == 1 && set.ranges()[0].start() == set.ranges()[0].end()
}

/// How back-references compare: by the lower-case letter alone.
pub(super) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}
