//! Python's `re.search`, as far as whether it finds anything.
//!
//! A pattern is read once. What an automaton can decide is decided by one, in linear time; the
//! rest (look-around, back-references) by a machine that counts its steps. Both are built when
//! they are first needed: most patterns are never reached, because a text that they can't match
//! without is not there.

mod ast;
mod backtrack;
mod case;
mod linear;
mod literal;
mod parse;
mod set;
#[cfg(test)]
mod tests;
mod width;

use std::sync::OnceLock;

use regex_automata::meta;

use self::ast::Node;
use self::backtrack::Program;
use self::linear::Alphabet;

pub(crate) use self::set::PatternSet;

/// Larger patterns are refused, counted with every repetition written out.
pub(crate) const MAX_SIZE: u64 = 100_000;

#[derive(Debug)]
pub(crate) struct Pattern {
    node: Node,
    groups: usize,
    size: u64,
    required: Option<Vec<String>>,
    ascii: OnceLock<Option<meta::Regex>>,
    unicode: OnceLock<Option<meta::Regex>>,
    program: OnceLock<Program>,
}

/// What is wrong with a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {at})")]
pub(crate) struct PatternError {
    /// From 1.
    at: usize,
    message: String,
}

impl PatternError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at: at.max(1),
            message: message.into(),
        }
    }
}

/// A search that took more steps than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the search took too many steps")]
pub(crate) struct StepLimit;

impl Pattern {
    pub fn parse(pattern: &str) -> Result<Self, PatternError> {
        let parsed = parse::parse(pattern)?;
        let size = width::size(&parsed.node);
        if size > MAX_SIZE {
            return Err(PatternError::new(
                1,
                format!(
                    "too large: {size} parts with every repetition written out, at most {MAX_SIZE}"
                ),
            ));
        }
        Ok(Self {
            required: literal::required(&parsed.node),
            node: parsed.node,
            groups: parsed.groups,
            size,
            ascii: OnceLock::new(),
            unicode: OnceLock::new(),
            program: OnceLock::new(),
        })
    }

    /// Whether the pattern is anywhere in the text.
    pub fn is_match(&self, text: &str) -> Result<bool, StepLimit> {
        if !text.is_empty()
            && let Some(regex) = self.automaton(text)
        {
            return Ok(regex.is_match(text));
        }
        self.program
            .get_or_init(|| backtrack::compile(&self.node, self.groups))
            .is_match(text)
    }

    /// One of these is in every text that matches.
    pub fn required(&self) -> Option<&[String]> {
        self.required.as_deref()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    fn automaton(&self, text: &str) -> Option<&meta::Regex> {
        let (cell, alphabet) = if text.is_ascii() {
            (&self.ascii, Alphabet::Ascii)
        } else {
            (&self.unicode, Alphabet::Unicode)
        };
        cell.get_or_init(|| {
            let hir = linear::translate(&self.node, alphabet)?;
            linear::build(&[hir])
        })
        .as_ref()
    }
}
