//! JSON, with the position of every value.
//!
//! Not `serde_json`: it gives no positions of values, drops duplicate keys silently, and rounds integers
//! beyond 64 bits.

use std::fmt::Write as _;

use brig_python_semantics::Value;
use brig_reason::ReasonCode;

use super::{Compat, MAX_DEPTH, Node, NodeKind, Pair, Pairs, duplicate, too_deep, too_many};
use crate::problem::{Fault, KeyPath, Position, ProblemLog, quoted};

#[cfg(test)]
mod tests;

pub(super) fn parse(
    text: &str,
    compat: Compat,
    max_nodes: usize,
    log: &mut ProblemLog,
) -> Option<Node> {
    let mut reader = Reader {
        rest: text,
        at: Position::START,
        compat,
        depth: 0,
        nodes_left: max_nodes,
        path: Vec::new(),
        log,
    };
    let node = reader.value().ok()?;
    reader.space();
    if !reader.rest.is_empty() {
        let _ = reader.fail::<()>("something after the end");
        return None;
    }
    Some(node)
}

/// The reason is in the log already.
struct Stop;

enum Step {
    Key(String),
    Index(usize),
}

struct Reader<'t, 'l> {
    rest: &'t str,
    at: Position,
    compat: Compat,
    depth: usize,
    nodes_left: usize,
    /// To the value that is being read.
    path: Vec<Step>,
    log: &'l mut ProblemLog,
}

impl<'t> Reader<'t, '_> {
    fn fail<T>(&mut self, problem: impl AsRef<str>) -> Result<T, Stop> {
        let fault = Fault::new(
            ReasonCode::PolicyJson,
            format!("not JSON: {}", problem.as_ref()),
        )
        .fix("check quotes, commas and brackets here and just before");
        let path = self.path();
        self.log.error(self.at, &KeyPath::written(&path), fault);
        Err(Stop)
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => {
                    let _ = write!(path, "[{index}]");
                }
                Step::Key(key) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
            }
        }
        path
    }

    /// Takes that many bytes, which end at a character.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        for c in taken.chars() {
            if c == '\n' {
                self.at.line += 1;
                self.at.column = 1;
            } else {
                self.at.column += 1;
            }
        }
        taken
    }

    fn space(&mut self) {
        let end = self.rest.find(|c| !matches!(c, ' ' | '\t' | '\n' | '\r'));
        self.take(end.unwrap_or(self.rest.len()));
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest.starts_with(token);
        if found {
            self.take(token.len());
        }
        found
    }

    fn value(&mut self) -> Result<Node, Stop> {
        self.space();
        let at = self.at;
        let Some(left) = self.nodes_left.checked_sub(1) else {
            too_many(at, self.log);
            return Err(Stop);
        };
        self.nodes_left = left;
        let kind = match self.rest.as_bytes().first() {
            Some(b'{') => self.nested(Self::map)?,
            Some(b'[') => self.nested(Self::list)?,
            Some(b'"') => NodeKind::Scalar(Value::Text(self.text()?)),
            Some(b'-' | b'0'..=b'9') => NodeKind::Scalar(self.number()?),
            Some(_) => NodeKind::Scalar(self.word()?),
            None => return self.fail("the text ends where a value should be"),
        };
        Ok(Node { at, kind })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<NodeKind, Stop>) -> Result<NodeKind, Stop> {
        if self.depth >= MAX_DEPTH {
            too_deep(self.at, self.log);
            return Err(Stop);
        }
        self.depth += 1;
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn list(&mut self) -> Result<NodeKind, Stop> {
        self.take(1);
        let mut items = Vec::new();
        self.space();
        if self.eat("]") {
            return Ok(NodeKind::List(items));
        }
        loop {
            self.path.push(Step::Index(items.len()));
            items.push(self.value()?);
            self.path.pop();
            self.space();
            if self.eat("]") {
                return Ok(NodeKind::List(items));
            }
            if !self.eat(",") {
                return self.fail("expected `,` or `]` in a list");
            }
        }
    }

    fn map(&mut self) -> Result<NodeKind, Stop> {
        self.take(1);
        let mut pairs = Pairs::default();
        self.space();
        if self.eat("}") {
            return Ok(NodeKind::Map(pairs.pairs));
        }
        loop {
            self.space();
            let at = self.at;
            if !self.rest.starts_with('"') {
                return self.fail("a key must be text in double quotes");
            }
            let key = self.text()?;
            self.space();
            if !self.eat(":") {
                return self.fail("a key must be followed by `:`");
            }
            self.path.push(Step::Key(key.clone()));
            let value = self.value()?;
            self.path.pop();
            if let Some(again) = pairs.insert(Pair { key, at, value }) {
                let path = self.path();
                duplicate(self.compat, self.log, &path, &again);
            }
            self.space();
            if self.eat("}") {
                return Ok(NodeKind::Map(pairs.pairs));
            }
            if !self.eat(",") {
                return self.fail("expected `,` or `}` in a map");
            }
        }
    }

    fn word(&mut self) -> Result<Value, Stop> {
        let words = [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ];
        for (word, value) in words {
            if self.eat(word) {
                return Ok(value);
            }
        }
        // What Python reads beyond the standard.
        if self.compat == Compat::Agt {
            for (word, value) in [("NaN", f64::NAN), ("Infinity", f64::INFINITY)] {
                if self.eat(word) {
                    return Ok(Value::Float(value));
                }
            }
        }
        let word: String = self
            .rest
            .chars()
            .take_while(|c| c.is_alphanumeric())
            .collect();
        self.fail(format!("{} is not a value", quoted(&word)))
    }

    fn number(&mut self) -> Result<Value, Stop> {
        if self.compat == Compat::Agt && self.eat("-Infinity") {
            return Ok(Value::Float(f64::NEG_INFINITY));
        }
        let end = self
            .rest
            .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
            .unwrap_or(self.rest.len());
        let number = &self.rest[..end];
        let Some(value) = read_number(number) else {
            return self.fail(format!("{} is not a number", quoted(number)));
        };
        self.take(end);
        Ok(value)
    }

    fn text(&mut self) -> Result<String, Stop> {
        self.take(1);
        let mut text = String::new();
        loop {
            let plain = self.rest.find(|c| matches!(c, '"' | '\\' | '\0'..='\x1f'));
            let Some(plain) = plain else {
                return self.fail("text without its closing `\"`");
            };
            text.push_str(self.take(plain));
            match self.rest.as_bytes().first() {
                Some(b'"') => {
                    self.take(1);
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => {
                    return self
                        .fail("a line break or control character in text; write it as an escape");
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Stop> {
        let Some(kind) = self.rest.chars().nth(1) else {
            return self.fail("text without its closing `\"`");
        };
        let plain = match kind {
            '"' | '\\' | '/' => kind,
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.code(),
            other => return self.fail(format!("unknown escape {}", quoted(&format!("\\{other}")))),
        };
        self.take(2);
        Ok(plain)
    }

    /// `\u2603`, or the two halves of a character beyond the first plane.
    fn code(&mut self) -> Result<char, Stop> {
        let Some(first) = hex(self.rest) else {
            return self.fail("`\\u` needs four hexadecimal digits");
        };
        if !(0xd800..0xe000).contains(&first) {
            self.take(6);
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let second = self.rest.get(6..).and_then(hex);
        let whole = second
            .filter(|second| first < 0xdc00 && (0xdc00..0xe000).contains(second))
            .and_then(|second| {
                char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))
            });
        match whole {
            Some(c) => {
                self.take(12);
                Ok(c)
            }
            None => self.fail("half a character (a lone surrogate)"),
        }
    }
}

fn hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let all_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    all_hex
        .then(|| u32::from_str_radix(digits, 16).ok())
        .flatten()
}

fn read_number(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole_end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(whole_end);
    if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    if rest.is_empty() {
        return Value::integer(text);
    }
    let (part, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let part_is_sound = part.is_empty() || part.strip_prefix('.').is_some_and(is_digits);
    let exponent_is_sound =
        exponent.is_none_or(|text| is_digits(text.strip_prefix(['+', '-']).unwrap_or(text)));
    (part_is_sound && exponent_is_sound)
        .then(|| text.parse().ok().map(Value::Float))
        .flatten()
}
