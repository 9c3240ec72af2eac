//! JSON as Python reads and writes it: whole numbers of any size, `NaN`, halves of surrogate pairs.

use std::collections::BTreeMap;

use crate::text::Text;

/// Deeper than Python goes before it gives up.
const DEPTH: u32 = 990;
/// More digits than Python turns into a number.
const DIGITS: usize = 4300;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// The decimal digits.
    Int(String),
    Float(f64),
    Str(Text),
    List(Vec<Value>),
    Dict(BTreeMap<Text, Value>),
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub struct ParseError {
    pub problem: &'static str,
    pub at: usize,
}

impl Value {
    pub fn str(text: &str) -> Self {
        Self::Str(text.into())
    }

    pub fn int(number: impl Into<i128>) -> Self {
        Self::Int(number.into().to_string())
    }

    pub fn dict<const N: usize>(fields: [(&str, Value); N]) -> Self {
        Self::Dict(fields.map(|(key, value)| (key.into(), value)).into())
    }

    /// As `json.loads` reads it.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser {
            text,
            bytes: text.as_bytes(),
            at: 0,
        };
        parser.space();
        let value = parser.value(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error("more than one value"));
        }
        Ok(value)
    }

    /// As `json.dumps(value, sort_keys=True)` writes it.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Int(digits) => out.push_str(digits),
            Self::Float(number) => out.push_str(&repr(*number)),
            Self::Str(text) => text.dump(out),
            Self::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Dict(fields) => {
                out.push('{');
                for (place, (key, value)) in fields.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    key.dump(out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Python's `repr` of a float: the shortest digits that read back, with an exponent below 1e-4 and
/// from 1e16 on.
fn repr(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .into();
    }
    let (digits, exponent) = shortest(number);
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let text = match exponent {
        0..16 => {
            let width = exponent.unsigned_abs() as usize + 1;
            let (whole, fraction) = match digits.split_at_checked(width) {
                Some((whole, "")) => (whole.to_owned(), "0"),
                Some((whole, fraction)) => (whole.to_owned(), fraction),
                None => (format!("{digits:0<width$}"), "0"),
            };
            format!("{whole}.{fraction}")
        }
        -4..0 => format!(
            "0.{}{digits}",
            "0".repeat(exponent.unsigned_abs() as usize - 1)
        ),
        _ => {
            let mark = if exponent < 0 { '-' } else { '+' };
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            format!("{first}{point}{rest}e{mark}{:02}", exponent.abs())
        }
    };
    format!("{sign}{text}")
}

/// The digits, and the exponent of the first one.
fn shortest(number: f64) -> (String, i32) {
    let number = number.abs();
    let text = format!("{number:e}");
    let length = text.split('e').next().unwrap_or_default().len().max(2) - 2;
    // Of two that are equally short and equally close, Python takes the even one.
    let even = format!("{number:.length$e}");
    let text = if even.parse() == Ok(number) {
        even
    } else {
        text
    };
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.replace('.', ""), exponent.parse().unwrap_or(0))
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, problem: &'static str) -> ParseError {
        ParseError {
            problem,
            at: self.at,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: u32) -> Result<Value, ParseError> {
        if depth > DEPTH {
            return Err(self.error("nested too deeply"));
        }
        if let Some(value) = self.word() {
            return Ok(value);
        }
        match self.peek() {
            Some(b'"') => Ok(Value::Str(self.string()?)),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.dict(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.error("expected a value")),
        }
    }

    /// Apart from [`Parser::value`], so that a level of nesting takes little stack.
    fn word(&mut self) -> Option<Value> {
        for (word, value) in [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ] {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Some(value);
            }
        }
        None
    }

    fn list(&mut self, depth: u32) -> Result<Value, ParseError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Value::List(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(Value::List(items));
            }
            if !self.eat(b',') {
                return Err(self.error("expected `,` or `]`"));
            }
        }
    }

    fn dict(&mut self, depth: u32) -> Result<Value, ParseError> {
        self.at += 1;
        let mut fields = BTreeMap::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Value::Dict(fields));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a quoted name"));
            }
            let key = self.string()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.error("expected `:`"));
            }
            self.space();
            // Of fields with the same name, the last one counts.
            fields.insert(key, self.value(depth + 1)?);
            self.space();
            if self.eat(b'}') {
                return Ok(Value::Dict(fields));
            }
            if !self.eat(b',') {
                return Err(self.error("expected `,` or `}`"));
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        let negative = self.eat(b'-');
        if !self.eat(b'0') && self.digits() == 0 {
            return Err(self.error("expected a digit"));
        }
        let whole = self.at;
        for (mark, signs) in [(&b".."[..], false), (b"eE", true)] {
            let before = self.at;
            if self.peek().is_some_and(|byte| mark.contains(&byte)) {
                self.at += 1;
                if signs && !self.eat(b'-') {
                    self.eat(b'+');
                }
                if self.digits() == 0 {
                    self.at = before;
                }
            }
        }
        let text = &self.text[start..self.at];
        if self.at > whole {
            let number = text.parse().map_err(|_| self.error("not a number"))?;
            return Ok(Value::Float(number));
        }
        if text.len() - usize::from(negative) > DIGITS {
            return Err(self.error("a number with too many digits"));
        }
        let digits = if text == "-0" { "0" } else { text };
        Ok(Value::Int(digits.into()))
    }

    fn string(&mut self) -> Result<Text, ParseError> {
        self.at += 1;
        let mut text = Text::default();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..0x20)) {
                self.at += 1;
            }
            text.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => self.escape(&mut text)?,
                Some(_) => return Err(self.error("a control character in a text")),
                None => return Err(self.error("a text without an end")),
            }
        }
    }

    fn escape(&mut self, text: &mut Text) -> Result<(), ParseError> {
        self.at += 1;
        let code = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => u32::from(byte),
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => 10,
            Some(b'r') => 13,
            Some(b't') => 9,
            Some(b'u') => {
                let high = self.unit()?;
                text.push(self.pair(high));
                return Ok(());
            }
            _ => return Err(self.error("an unknown escape")),
        };
        self.at += 1;
        text.push(code);
        Ok(())
    }

    /// Four hexadecimal digits after the `u`.
    fn unit(&mut self) -> Result<u32, ParseError> {
        let digits = self.bytes.get(self.at + 1..self.at + 5);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let unit = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.error("an escape without four digits"))?;
        self.at += 5;
        Ok(unit)
    }

    /// The code point of a pair, if the other half follows.
    fn pair(&mut self, high: u32) -> u32 {
        if !(0xd800..0xdc00).contains(&high) || !self.bytes[self.at..].starts_with(b"\\u") {
            return high;
        }
        let before = self.at;
        self.at += 1;
        match self.unit() {
            Ok(low @ 0xdc00..=0xdfff) => 0x1_0000 + (((high - 0xd800) << 10) | (low - 0xdc00)),
            _ => {
                self.at = before;
                high
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        Value::parse(text).expect("valid").dump()
    }

    /// The right side is the output of Python 3.11.
    #[test]
    fn values_are_written_as_python_writes_them() {
        for (text, expected) in [
            (
                "[1,2.0,1e5,1E16,1e-5,0.0001,123456789.12345679]",
                "[1, 2.0, 100000.0, 1e+16, 1e-05, 0.0001, 123456789.12345679]",
            ),
            (
                "[-0,-0.0,1e-07,1e22,9007199254740993,5e-324,1.7976931348623157e308]",
                "[0, -0.0, 1e-07, 1e+22, 9007199254740993, 5e-324, 1.7976931348623157e+308]",
            ),
            (
                "[1e15,123456789012345680.0,9999999999999998.0,1e400,-1e400,NaN,Infinity,-Infinity]",
                "[1000000000000000.0, 1.2345678901234568e+17, 9999999999999998.0, Infinity, -Infinity, NaN, Infinity, -Infinity]",
            ),
            ("1180591620717411303424", "1180591620717411303424"),
            (
                "[912647274173914.25,0.00012,12.0,0.1,1.5e300]",
                "[912647274173914.2, 0.00012, 12.0, 0.1, 1.5e+300]",
            ),
            (
                "{\"b\":1,\"a\":{\"z\":null,\"Z\":true},\"a\":2}",
                "{\"a\": 2, \"b\": 1}",
            ),
            (
                "\"\\ud83d\\ude00 \\ud800 \\udc00\\ud83d \u{e9}\u{2028}\u{7f}\\/\\u0000\"",
                "\"\\ud83d\\ude00 \\ud800 \\udc00\\ud83d \\u00e9\\u2028\\u007f/\\u0000\"",
            ),
            (
                "{\"\\ud800\":1,\"\u{e000}\":2,\"\u{1f600}\":3,\"\":4}",
                "{\"\": 4, \"\\ud800\": 1, \"\\ue000\": 2, \"\\ud83d\\ude00\": 3}",
            ),
            (" [ ] ", "[]"),
            ("{ }", "{}"),
            ("\"\\ud83d\\u0041\"", "\"\\ud83dA\""),
        ] {
            assert_eq!(again(text), expected, "{text}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for text in [
            "",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "--1",
            "- 1",
            "nan",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u+123\"",
            "\"",
            "[1 2]",
            "1 2",
            "tru",
            "\u{feff}1",
            "\u{a0}1",
        ] {
            assert!(Value::parse(text).is_err(), "{text}");
        }
        assert!(Value::parse(&"9".repeat(4301)).is_err());
        assert!(Value::parse(&"9".repeat(4300)).is_ok());
        assert!(Value::parse(&"[".repeat(100_000)).is_err());
    }
}
