//! Everything that begins with a parenthesis.

use super::flags::{Flags, is_flag};
use super::{MAX_DEPTH, Parser, PatternError};
use crate::pattern::ast::{Look, Node};
use crate::pattern::width;
use crate::unicode;

impl Parser {
    /// After the `(`. Nothing for a comment.
    pub(super) fn group(&mut self, flags: Flags) -> Result<Option<Node>, PatternError> {
        if !self.eat('?') {
            return self.capture(None, flags).map(Some);
        }
        let Some(c) = self.next() else {
            return Err(self.error("the pattern ends within a group"));
        };
        let node = match c {
            'P' => self.python_group(flags)?,
            ':' => Node::Group {
                index: None,
                node: Box::new(self.inside(flags)?),
            },
            '#' => {
                self.comment()?;
                return Ok(None);
            }
            '=' | '!' => self.look(false, c == '!', flags)?,
            '<' => match self.next() {
                Some('=') => self.look(true, false, flags)?,
                Some('!') => self.look(true, true, flags)?,
                _ => {
                    return Err(self.error(
                        "`(?<` must be followed by `=` or `!`; a named group is `(?P<name>`",
                    ));
                }
            },
            '(' => self.condition(flags)?,
            '>' => Node::Atomic(Box::new(self.inside(flags)?)),
            _ if is_flag(c) || c == '-' => {
                self.at -= 1;
                let inner = self.scoped_flags(flags)?;
                Node::Group {
                    index: None,
                    node: Box::new(self.inside(inner)?),
                }
            }
            _ => return Err(self.error(format!("unknown group `(?{c}`"))),
        };
        Ok(Some(node))
    }

    fn inside(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let node = self.alternation(flags)?;
        if self.eat(')') {
            Ok(node)
        } else {
            Err(self.error("a `(` without its `)`"))
        }
    }

    fn capture(&mut self, name: Option<String>, flags: Flags) -> Result<Node, PatternError> {
        let index = self.widths.len();
        if let Some(name) = name {
            if self.names.contains_key(&name) {
                return Err(self.error(format!("two groups are named `{name}`")));
            }
            self.names.insert(name, index);
        }
        self.widths.push(None);
        let node = self.inside(flags)?;
        self.widths[index] = Some(width::of(&node, &self.widths));
        Ok(Node::Group {
            index: Some(index),
            node: Box::new(node),
        })
    }

    fn python_group(&mut self, flags: Flags) -> Result<Node, PatternError> {
        if self.eat('<') {
            let name = self.name('>')?;
            return self.capture(Some(name), flags);
        }
        if self.eat('=') {
            let name = self.name(')')?;
            let group = self.named(&name)?;
            return self.reference(group, flags);
        }
        Err(self.error("`(?P` must be followed by `<` or `=`"))
    }

    pub(super) fn until(&mut self, end: char) -> Result<String, PatternError> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some(c) if c == end => break,
                Some(c) => text.push(c),
                None => return Err(self.error(format!("a group name without its `{end}`"))),
            }
        }
        if text.is_empty() {
            return Err(self.error("a group name is missing"));
        }
        Ok(text)
    }

    fn name(&mut self, end: char) -> Result<String, PatternError> {
        let name = self.until(end)?;
        if is_identifier(&name) {
            Ok(name)
        } else {
            Err(self.error(format!("`{name}` is not a valid group name")))
        }
    }

    fn named(&self, name: &str) -> Result<usize, PatternError> {
        (self.names.get(name).copied())
            .ok_or_else(|| self.error(format!("there is no group `{name}`")))
    }

    pub(super) fn reference(&self, group: usize, flags: Flags) -> Result<Node, PatternError> {
        match self.widths.get(group) {
            None => return Err(self.error(format!("there is no group {group}"))),
            Some(None) => return Err(self.error("a reference to a group that is still open")),
            Some(Some(_)) => {}
        }
        self.not_within_look_behind(group)?;
        Ok(Node::Reference {
            group,
            fold: flags.fold(),
        })
    }

    fn not_within_look_behind(&self, group: usize) -> Result<(), PatternError> {
        let Some(outside) = self.outside_look_behind else {
            return Ok(());
        };
        if self.widths.get(group).is_none_or(Option::is_none) {
            return Err(self.error("a reference to a group that is still open"));
        }
        if group >= outside {
            return Err(self.error("a reference to a group of the same look-behind"));
        }
        Ok(())
    }

    fn look(&mut self, behind: bool, negative: bool, flags: Flags) -> Result<Node, PatternError> {
        let before = self.outside_look_behind;
        if behind && before.is_none() {
            self.outside_look_behind = Some(self.widths.len());
        }
        let node = self.inside(flags)?;
        self.outside_look_behind = before;
        let width = width::of(&node, &self.widths);
        if behind && width.min != width.max {
            return Err(self.error("a look-behind needs a fixed width"));
        }
        Ok(Node::Look(Look {
            behind: behind.then(|| usize::try_from(width.min).unwrap_or(usize::MAX)),
            negative,
            node: Box::new(node),
        }))
    }

    fn condition(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let at = self.at;
        let name = self.until(')')?;
        let group = if is_identifier(&name) {
            self.named(&name)?
        } else {
            let number = name.trim().replace('_', "");
            let group: usize = (number.strip_prefix('+').unwrap_or(&number).parse())
                .map_err(|_| self.error(format!("`{name}` is not a valid group name")))?;
            if group == 0 {
                return Err(self.error("there is no group 0"));
            }
            self.conditions.entry(group).or_insert(at);
            group
        };
        self.not_within_look_behind(group)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        let yes = self.sequence(flags)?;
        let no = if self.eat('|') {
            self.sequence(flags)?
        } else {
            Node::Empty
        };
        self.depth -= 1;
        if self.peek() == Some('|') {
            return Err(self.error("a condition has no more than two branches"));
        }
        if !self.eat(')') {
            return Err(self.error("a `(` without its `)`"));
        }
        Ok(Node::If {
            group,
            yes: Box::new(yes),
            no: Box::new(no),
        })
    }
}

/// Close enough to `str.isidentifier()` for the names of groups.
fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let word = |c: char| unicode::contains(&unicode::WORD, c);
    chars.next().is_some_and(|c| word(c) && !c.is_numeric()) && chars.all(word)
}
