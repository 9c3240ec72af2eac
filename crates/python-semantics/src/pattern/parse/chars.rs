//! Single characters, sets of them, and escapes.

use super::flags::Flags;
use super::{Parser, PatternError};
use crate::pattern::ast::{At, Class, Fold, Item, Node, Set};

impl Parser {
    /// After the `[`.
    pub(super) fn set(&mut self, flags: Flags) -> Result<Node, PatternError> {
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
    pub(super) fn escape(&mut self, flags: Flags) -> Result<Node, PatternError> {
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

    /// An escape for one character, inside and outside of sets.
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

pub(super) fn literal(c: char, flags: Flags) -> Node {
    Node::Set(Set::literal(u32::from(c), flags.fold()))
}

pub(super) fn plain(c: char, flags: Flags) -> Node {
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
