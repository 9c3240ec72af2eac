//! The flags of a pattern, for all of it and for parts.

use super::{Parser, PatternError};
use crate::pattern::ast::Fold;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub ascii: bool,
    pub unicode: bool,
    pub ignore_case: bool,
    pub multi_line: bool,
    pub dot_all: bool,
    pub verbose: bool,
}

impl Flags {
    pub(super) fn fold(self) -> Fold {
        match (self.ignore_case, self.ascii) {
            (false, _) => Fold::None,
            (true, true) => Fold::Ascii,
            (true, false) => Fold::Unicode,
        }
    }

    fn set(&mut self, flag: char, on: bool) {
        match flag {
            'a' => (self.ascii, self.unicode) = (true, false),
            'u' => (self.ascii, self.unicode) = (false, true),
            'i' => self.ignore_case = on,
            'm' => self.multi_line = on,
            's' => self.dot_all = on,
            'x' => self.verbose = on,
            _ => {}
        }
    }
}

impl Parser {
    /// `(?i)` and similar flags, which apply to the whole pattern and come first in it.
    pub(super) fn global_flags(&mut self, flags: &mut Flags) -> Result<(), PatternError> {
        loop {
            let start = self.at;
            if flags.verbose {
                self.skip_space();
            }
            if !self.eat_text("(?") {
                self.at = start;
                return Ok(());
            }
            if self.eat('#') {
                self.comment()?;
                continue;
            }
            if !self.peek().is_some_and(is_flag) {
                self.at = start;
                return Ok(());
            }
            let mut seen = Flags::default();
            while let Some(flag) = self.peek().filter(|c| is_flag(*c)) {
                self.at += 1;
                self.type_flag(flag, seen)?;
                seen.set(flag, true);
            }
            if !self.eat(')') {
                self.at = start;
                return Ok(());
            }
            if (seen.ascii && flags.unicode) || (seen.unicode && flags.ascii) {
                return Err(self.error("the flags `a` and `u` exclude each other"));
            }
            for &c in &self.chars[start..self.at] {
                match c {
                    't' => self.template = true,
                    c if is_flag(c) => flags.set(c, true),
                    _ => {}
                }
            }
        }
    }

    fn type_flag(&self, flag: char, seen: Flags) -> Result<(), PatternError> {
        match flag {
            'L' => Err(self.error("the flag `L` is for bytes only")),
            'a' if seen.unicode => Err(self.error("the flags `a` and `u` exclude each other")),
            'u' if seen.ascii => Err(self.error("the flags `a` and `u` exclude each other")),
            _ => Ok(()),
        }
    }

    /// `i-s:`, after the `(?`.
    pub(super) fn scoped_flags(&mut self, outer: Flags) -> Result<Flags, PatternError> {
        let mut flags = outer;
        let mut on = Vec::new();
        let mut seen = Flags::default();
        while let Some(flag) = self.peek().filter(|c| is_flag(*c)) {
            self.at += 1;
            self.type_flag(flag, seen)?;
            seen.set(flag, true);
            flags.set(flag, true);
            on.push(flag);
        }
        if on.contains(&'t') && self.peek() != Some(')') {
            return Err(self.error("the flag `t` is for the whole pattern"));
        }
        if self.eat('-') {
            let mut any = false;
            while let Some(flag) = self.peek().filter(|c| is_flag(*c)) {
                self.at += 1;
                any = true;
                if matches!(flag, 'a' | 'u' | 'L' | 't') {
                    return Err(self.error(format!("the flag `{flag}` can't be turned off")));
                }
                if on.contains(&flag) {
                    return Err(self.error(format!("the flag `{flag}` is turned on and off")));
                }
                flags.set(flag, false);
            }
            if !any {
                return Err(self.error("a flag is missing after `-`"));
            }
        } else if self.peek() == Some(')') {
            return Err(self.error("flags for the whole pattern must be at its start"));
        }
        if self.eat(':') {
            Ok(flags)
        } else {
            Err(self.error("flags must end with `:`"))
        }
    }
}

pub(super) fn is_flag(c: char) -> bool {
    matches!(c, 'a' | 'i' | 'L' | 'm' | 's' | 't' | 'u' | 'x')
}
