//! Python's pattern syntax, with Python's idea of what is wrong in it.

use std::collections::{BTreeMap, HashMap};

use super::PatternError;
use super::ast::{At, Class, Fold, Item, Look, Node, Repeat, Set, Style};
use super::width::{self, Width};
use crate::unicode;

/// Deeper nesting is refused: whatever walks the tree does so on the stack.
const MAX_DEPTH: usize = 100;
const MAX_REPEAT: u64 = 4_294_967_295;

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    ascii: bool,
    unicode: bool,
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    verbose: bool,
}

impl Flags {
    fn fold(self) -> Fold {
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

    /// `(?i)` and its like, which count for the whole pattern and stand at its very start.
    fn global_flags(&mut self, flags: &mut Flags) -> Result<(), PatternError> {
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
            return Err(self.error("the least number of repetitions is more than the most"));
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

    /// After the `(`. Nothing for a comment.
    fn group(&mut self, flags: Flags) -> Result<Option<Node>, PatternError> {
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

    fn until(&mut self, end: char) -> Result<String, PatternError> {
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
            Err(self.error(format!("`{name}` is no group name")))
        }
    }

    fn named(&self, name: &str) -> Result<usize, PatternError> {
        (self.names.get(name).copied())
            .ok_or_else(|| self.error(format!("there is no group `{name}`")))
    }

    fn reference(&self, group: usize, flags: Flags) -> Result<Node, PatternError> {
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
                .map_err(|_| self.error(format!("`{name}` is no group name")))?;
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

    /// `i-s:`, after the `(?`.
    fn scoped_flags(&mut self, outer: Flags) -> Result<Flags, PatternError> {
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
            return Err(self.error("flags for the whole pattern must stand at its start"));
        }
        if self.eat(':') {
            Ok(flags)
        } else {
            Err(self.error("flags must end with `:`"))
        }
    }

    /// After the `[`.
    fn set(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let negated = self.eat('^');
        let mut items = Vec::new();
        loop {
            let Some(c) = self.next() else {
                return Err(self.error("a `[` without its `]`"));
            };
            if c == ']' && !items.is_empty() {
                break;
            }
            let first = self.set_item(c, flags)?;
            if self.peek() != Some('-') {
                items.push(first);
                continue;
            }
            self.at += 1;
            let Some(c) = self.next() else {
                return Err(self.error("a `[` without its `]`"));
            };
            if c == ']' {
                items.push(first);
                items.push(Item::Range(u32::from('-'), u32::from('-')));
                break;
            }
            match (first, self.set_item(c, flags)?) {
                (Item::Range(low, _), Item::Range(high, _)) if low <= high => {
                    items.push(Item::Range(low, high));
                }
                _ => return Err(self.error("not a range of characters")),
            }
        }
        Ok(Node::Set(Set {
            items,
            negated,
            fold: flags.fold(),
        }))
    }

    fn set_item(&mut self, c: char, flags: Flags) -> Result<Item, PatternError> {
        if c != '\\' {
            return Ok(Item::Range(u32::from(c), u32::from(c)));
        }
        let Some(c) = self.next() else {
            return Err(self.error("the pattern ends with a `\\`"));
        };
        if let Some(item) = class(c, flags) {
            return Ok(item);
        }
        let code = match c {
            'b' => 8,
            '0'..='7' => {
                self.at -= 1;
                self.octal(3)?
            }
            _ => self.character(c)?,
        };
        Ok(Item::Range(code, code))
    }

    /// After the `\`.
    fn escape(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let Some(c) = self.next() else {
            return Err(self.error("the pattern ends with a `\\`"));
        };
        let word = |negated| {
            Node::At(At::Word {
                ascii: flags.ascii,
                negated,
            })
        };
        if let Some(item) = class(c, flags) {
            return Ok(Node::Set(Set {
                items: vec![item],
                negated: false,
                fold: Fold::None,
            }));
        }
        let code = match c {
            'A' => return Ok(Node::At(At::Start)),
            'Z' => return Ok(Node::At(At::End)),
            'b' => return Ok(word(false)),
            'B' => return Ok(word(true)),
            '0' => {
                self.at -= 1;
                self.octal(3)?
            }
            '1'..='9' => {
                self.at -= 1;
                if self.looks_octal() {
                    self.octal(3)?
                } else {
                    let mut group = 0;
                    for _ in 0..2 {
                        if let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
                            self.at += 1;
                            group = group * 10 + digit as usize;
                        }
                    }
                    return self.reference(group, flags);
                }
            }
            _ => self.character(c)?,
        };
        Ok(Node::Set(Set::literal(code, flags.fold())))
    }

    fn looks_octal(&self) -> bool {
        (0..3).all(|i| {
            let c = self.chars.get(self.at + i);
            c.is_some_and(|c| ('0'..='7').contains(c))
        })
    }

    fn octal(&mut self, most: usize) -> Result<u32, PatternError> {
        let mut code = 0;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            self.at += 1;
            code = code * 8 + digit;
        }
        if code > 0o377 {
            return Err(self.error("an octal escape is at most \\377"));
        }
        Ok(code)
    }

    /// An escape that stands for one character, inside and outside of sets.
    fn character(&mut self, c: char) -> Result<u32, PatternError> {
        Ok(match c {
            'a' => 7,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            'x' => self.hex(2)?,
            'u' => self.hex(4)?,
            'U' => {
                let code = self.hex(8)?;
                if code > 0x10_ffff {
                    return Err(self.error("there is no such character"));
                }
                code
            }
            'N' => {
                if !self.eat('{') {
                    return Err(self.error("`\\N` needs a name in braces"));
                }
                let name = self.until('}')?;
                let named = unicode_names2::character(&name);
                u32::from(
                    named.ok_or_else(|| self.error(format!("no character is named `{name}`")))?,
                )
            }
            c if c.is_ascii_alphanumeric() => {
                return Err(self.error(format!("unknown escape `\\{c}`")));
            }
            c => u32::from(c),
        })
    }

    fn hex(&mut self, digits: usize) -> Result<u32, PatternError> {
        let mut code: u32 = 0;
        for _ in 0..digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(self.error(format!("the escape needs {digits} hexadecimal digits")));
            };
            self.at += 1;
            code = code.wrapping_shl(4) | digit;
        }
        Ok(code)
    }
}

fn is_flag(c: char) -> bool {
    matches!(c, 'a' | 'i' | 'L' | 'm' | 's' | 't' | 'u' | 'x')
}

fn literal(c: char, flags: Flags) -> Node {
    Node::Set(Set::literal(u32::from(c), flags.fold()))
}

fn plain(c: char, flags: Flags) -> Node {
    match c {
        '.' => Node::Set(Set {
            items: if flags.dot_all {
                Vec::new()
            } else {
                vec![Item::Range(10, 10)]
            },
            negated: true,
            fold: Fold::None,
        }),
        '^' if flags.multi_line => Node::At(At::LineStart),
        '^' => Node::At(At::Start),
        '$' if flags.multi_line => Node::At(At::LineEnd),
        '$' => Node::At(At::EndOrLastNewline),
        c => literal(c, flags),
    }
}

fn class(c: char, flags: Flags) -> Option<Item> {
    let class = match c.to_ascii_lowercase() {
        'd' => Class::Digit,
        's' => Class::Space,
        'w' => Class::Word,
        _ => return None,
    };
    Some(Item::Class {
        class,
        negated: c.is_ascii_uppercase(),
        ascii: flags.ascii,
    })
}

/// Close enough to `str.isidentifier()` for the names of groups.
fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let word = |c: char| unicode::contains(&unicode::WORD, c);
    chars.next().is_some_and(|c| word(c) && !c.is_numeric()) && chars.all(word)
}
