//! Patterns with look-around or back-references. A backtracking machine that counts its steps, and
//! gives up when there are too many.

mod compile;
mod machine;

use regex_syntax::hir::ClassUnicode;

use super::ast::{At, Fold};
use crate::unicode;

pub(super) use self::compile::compile;

#[derive(Debug)]
pub(super) struct Program {
    code: Vec<Step>,
    sets: Vec<CharSet>,
    /// Two for each group, then one for each loop that may match nothing.
    slots: usize,
    from_start_only: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize),
    At(At),
    /// Tries the first, then the second.
    Split(usize, usize),
    Jump(usize),
    Save(usize),
    /// As many characters of the set as there are, up to a number, giving them back one by one.
    Run {
        set: usize,
        min: u32,
        max: Option<u32>,
    },
    /// Leaves the loop if its last turn matched nothing.
    IfStuck {
        slot: usize,
        exit: usize,
    },
    Reference {
        group: usize,
        fold: Fold,
    },
    /// The code up to `end` decides alone, without being asked again.
    Look {
        behind: Option<usize>,
        negative: bool,
        end: usize,
    },
    Atomic {
        end: usize,
    },
    IfGroup {
        group: usize,
        no: usize,
    },
    Accept,
}

#[derive(Debug)]
struct CharSet {
    class: ClassUnicode,
    ascii: [bool; 128],
}

impl CharSet {
    fn new(class: ClassUnicode) -> Self {
        let mut ascii = [false; 128];
        for (code, found) in (0_u8..).zip(ascii.iter_mut()) {
            *found = unicode::contains(&class, char::from(code));
        }
        Self { class, ascii }
    }

    fn has(&self, c: char) -> bool {
        match self.ascii.get(c as usize) {
            Some(found) => *found,
            None => unicode::contains(&self.class, c),
        }
    }
}
