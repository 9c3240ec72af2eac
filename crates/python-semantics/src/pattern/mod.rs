//! Python's `re.search`: whether a pattern matches anywhere in a text.
//!
//! In `regex` and `fancy-regex` many patterns mean something else: `$`, `\Z`, `\w`, `\s`, case folding and
//! some of the syntax differ from Python. A rule that matches less than its author tested allows more,
//! so patterns are parsed here, and run on `regex-automata`.
//!
//! A pattern is parsed once. What an automaton can decide runs in linear time; the rest (look-around,
//! back-references) runs on a backtracking machine that counts its steps. Both are built when they are
//! first needed: most patterns are never tried, because a text that they require is missing.

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

pub use self::set::PatternSet;

/// Larger patterns are refused, counted with every repetition written out.
const MAX_SIZE: u64 = 100_000;

/// A pattern of Python's `re`, parsed. The machine that runs it is built on first use.
#[derive(Debug)]
pub struct Pattern {
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
pub struct PatternError {
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
pub struct StepLimit;

impl Pattern {
    /// Reads a pattern of Python 3.11. The error says what is wrong, and at which character.
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

    /// The number of its parts, with every repetition written out.
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
