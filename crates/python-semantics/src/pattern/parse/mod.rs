//! Python's pattern syntax, with Python's idea of what is wrong in it.

mod chars;
mod flags;
mod group;

use std::collections::{BTreeMap, HashMap};

use self::chars::{literal, plain};
use self::flags::Flags;
use super::PatternError;
use super::ast::{Node, Repeat, Style};
use super::width::Width;

/// Deeper nesting is refused: whatever walks the tree does so on the stack.
const MAX_DEPTH: usize = 100;
const MAX_REPEAT: u64 = 4_294_967_295;

pub(super) struct Parsed {
    pub node: Node,
    pub groups: usize,
}

pub(super) fn parse(pattern: &str) -> Result<Parsed, PatternError> {
    let mut parser = Parser {
        chars: pattern.chars().collect(),
        at: 0,
        depth: 0,
        template: false,
        names: HashMap::new(),
        widths: vec![None],
        outside_look_behind: None,
        conditions: BTreeMap::new(),
    };
    let mut flags = Flags::default();
    parser.global_flags(&mut flags)?;
    let node = parser.alternation(flags)?;
    if parser.peek().is_some() {
        return Err(parser.error("a `)` without its `(`"));
    }
    let groups = parser.widths.len();
    if let Some((group, at)) = parser
        .conditions
        .iter()
        .find(|(group, _)| **group >= groups)
    {
        return Err(PatternError::new(*at, format!("there is no group {group}")));
    }
    Ok(Parsed { node, groups })
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    /// The flag `t`, with which nothing can be repeated.
    template: bool,
    names: HashMap<String, usize>,
    /// By group; nothing while the group is open. Group 0 is the whole and never closes.
    widths: Vec<Option<Width>>,
    /// The number of groups before the outermost look-behind that is being read.
    outside_look_behind: Option<usize>,
    /// Groups that conditions ask for, and where.
    conditions: BTreeMap<usize, usize>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += 1;
        }
        found
    }

    fn eat_text(&mut self, text: &str) -> bool {
        let found = text
            .chars()
            .enumerate()
            .all(|(i, c)| self.chars.get(self.at + i) == Some(&c));
        if found {
            self.at += text.chars().count();
        }
        found
    }

    fn error(&self, message: impl Into<String>) -> PatternError {
        PatternError::new(self.at, message)
    }

    fn comment(&mut self) -> Result<(), PatternError> {
        while let Some(c) = self.next() {
            match c {
                ')' => return Ok(()),
                // An escape is one unit to Python, also in a comment.
                '\\' => {
                    self.next();
                }
                _ => {}
            }
        }
        Err(self.error("a comment without its `)`"))
    }

    fn skip_space(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => self.at += 1,
                '#' => {
                    while let Some(c) = self.next() {
                        if c == '\\' {
                            self.next();
                        } else if c == '\n' {
                            break;
                        }
                    }
                }
                _ => return,
            }
        }
    }

    fn alternation(&mut self, flags: Flags) -> Result<Node, PatternError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        let mut branches = vec![self.sequence(flags)?];
        while self.eat('|') {
            branches.push(self.sequence(flags)?);
        }
        self.depth -= 1;
        match branches.pop() {
            Some(only) if branches.is_empty() => Ok(only),
            Some(last) => {
                branches.push(last);
                Ok(Node::Alternation(branches))
            }
            None => Ok(Node::Empty),
        }
    }

    fn sequence(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let mut nodes: Vec<Node> = Vec::new();
        loop {
            if flags.verbose {
                self.skip_space();
            }
            match self.peek() {
                None | Some('|' | ')') => break,
                Some('*' | '+' | '?') => self.repeat(&mut nodes)?,
                Some('{') => {
                    if !self.counted(&mut nodes)? {
                        self.at += 1;
                        nodes.push(literal('{', flags));
                    }
                }
                Some('(') => {
                    self.at += 1;
                    if let Some(group) = self.group(flags)? {
                        nodes.push(group);
                    }
                }
                Some('[') => {
                    self.at += 1;
                    nodes.push(self.set(flags)?);
                }
                Some('\\') => {
                    self.at += 1;
                    nodes.push(self.escape(flags)?);
                }
                Some(c) => {
                    self.at += 1;
                    nodes.push(plain(c, flags));
                }
            }
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Concat(nodes),
        })
    }

    fn repeat(&mut self, nodes: &mut Vec<Node>) -> Result<(), PatternError> {
        let (min, max) = match self.next() {
            Some('?') => (0, Some(1)),
            Some('+') => (1, None),
            _ => (0, None),
        };
        self.apply_repeat(nodes, min, max)
    }

    /// `{2,3}`. What does not look like it is literal, and nothing is consumed.
    fn counted(&mut self, nodes: &mut Vec<Node>) -> Result<bool, PatternError> {
        let start = self.at;
        self.at += 1;
        if self.peek() == Some('}') {
            self.at = start;
            return Ok(false);
        }
        let low = self.digits();
        let high = if self.eat(',') {
            self.digits()
        } else {
            low.clone()
        };
        if !self.eat('}') {
            self.at = start;
            return Ok(false);
        }
        let min = self.count(&low)?.unwrap_or(0);
        let max = self.count(&high)?;
        if max.is_some_and(|max| max < min) {
            return Err(self.error("the minimum number of repetitions is larger than the maximum"));
        }
        self.apply_repeat(nodes, min, max)?;
        Ok(true)
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(c) = self.peek().filter(char::is_ascii_digit) {
            self.at += 1;
            digits.push(c);
        }
        digits
    }

    fn count(&self, digits: &str) -> Result<Option<u32>, PatternError> {
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse::<u64>() {
            Ok(count) if count < MAX_REPEAT => Ok(u32::try_from(count).ok()),
            _ => Err(self.error("the number of repetitions is too large")),
        }
    }

    fn apply_repeat(
        &mut self,
        nodes: &mut Vec<Node>,
        min: u32,
        max: Option<u32>,
    ) -> Result<(), PatternError> {
        match nodes.last() {
            _ if self.template => return Err(self.error("a repetition with the flag `t`")),
            None | Some(Node::At(_)) => return Err(self.error("nothing to repeat")),
            Some(Node::Repeat(_)) => return Err(self.error("a repetition of a repetition")),
            Some(_) => {}
        }
        let style = if self.eat('?') {
            Style::Lazy
        } else if self.eat('+') {
            Style::Possessive
        } else {
            Style::Greedy
        };
        if let Some(node) = nodes.pop() {
            nodes.push(Node::Repeat(Repeat {
                node: Box::new(node),
                min,
                max,
                style,
            }));
        }
        Ok(())
    }
}
