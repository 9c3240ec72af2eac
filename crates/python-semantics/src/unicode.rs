//! The classes of characters that Python's strings and patterns are built on.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, ClassUnicode, HirKind};

/// `str.isalnum()` or an underscore.
pub(crate) static WORD: LazyLock<ClassUnicode> = LazyLock::new(|| class(r"[\p{L}\p{N}_]"));
/// `str.isspace()`: with the four separators of ASCII, unlike `White_Space`.
pub(crate) static SPACE: LazyLock<ClassUnicode> = LazyLock::new(|| class(r"[\s\x{1c}-\x{1f}]"));
/// `str.isdecimal()`.
pub(crate) static DIGIT: LazyLock<ClassUnicode> = LazyLock::new(|| class(r"\p{Nd}"));
/// What `repr()` escapes.
static HIDDEN: LazyLock<ClassUnicode> = LazyLock::new(|| class(r"[\p{C}\p{Z}&&[^ ]]"));

fn class(pattern: &str) -> ClassUnicode {
    let hir = regex_syntax::parse(pattern).expect("a class that is written above");
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(class)) => class,
        other => unreachable!("not a class: {other:?}"),
    }
}

pub(crate) fn contains(class: &ClassUnicode, c: char) -> bool {
    class
        .ranges()
        .binary_search_by(|range| {
            if range.end() < c {
                std::cmp::Ordering::Less
            } else if range.start() > c {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        })
        .is_ok()
}

/// `str.isprintable()`.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        _ if c.is_ascii() => false,
        _ => !contains(&HIDDEN, c),
    }
}
