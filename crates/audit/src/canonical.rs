//! Canonical JSON (RFC 8785), without fractions: whole numbers that a double holds exactly.

use std::cmp::Ordering;

use serde::Serialize;
use serde_json::{Map, Value};

/// The largest whole number that every JSON reader keeps exact.
const MAX: u64 = (1 << 53) - 1;
/// Deeper than any record.
const DEPTH: u32 = 32;

#[derive(Clone, Debug, thiserror::Error)]
pub enum NotCanonical {
    #[error("the number `{0}` is not whole, or too large to be kept exact")]
    Number(String),
    #[error("cannot be written as JSON: {0}")]
    Json(String),
}

/// The one text of a value.
pub fn to_canonical(value: &impl Serialize) -> Result<String, NotCanonical> {
    let value = serde_json::to_value(value).map_err(|e| NotCanonical::Json(e.to_string()))?;
    let mut text = String::with_capacity(512);
    write(&value, &mut text)?;
    Ok(text)
}

fn write(value: &Value, out: &mut String) -> Result<(), NotCanonical> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => {
            let size = number
                .as_i64()
                .map(i64::unsigned_abs)
                .or_else(|| number.as_u64());
            if size.is_none_or(|size| size > MAX) {
                return Err(NotCanonical::Number(number.to_string()));
            }
            out.push_str(&number.to_string());
        }
        Value::String(text) => quote(text, out),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write(item, out)?;
            }
            out.push(']');
        }
        Value::Object(fields) => object(fields, out)?,
    }
    Ok(())
}

fn object(fields: &Map<String, Value>, out: &mut String) -> Result<(), NotCanonical> {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_by(|a, b| order(a.0, b.0));
    out.push('{');
    for (place, (key, value)) in sorted.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        quote(key, out);
        out.push(':');
        write(value, out)?;
    }
    out.push('}');
    Ok(())
}

/// Keys are sorted by UTF-16 code units.
fn order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        return a.cmp(b);
    }
    a.encode_utf16().cmp(b.encode_utf16())
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain..at]);
        plain = at + 1;
        match short(byte) {
            Some(letter) => {
                out.push('\\');
                out.push(char::from(letter));
            }
            None => {
                let digits = b"0123456789abcdef";
                out.push_str("\\u00");
                out.push(char::from(digits[usize::from(byte >> 4)]));
                out.push(char::from(digits[usize::from(byte & 15)]));
            }
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// The letter after the backslash, for what has one.
fn short(byte: u8) -> Option<u8> {
    Some(match byte {
        8 => b'b',
        9 => b't',
        10 => b'n',
        12 => b'f',
        13 => b'r',
        b'"' | b'\\' => byte,
        _ => return None,
    })
}

/// Whether a text is canonical, without building anything from it.
pub fn is_canonical(text: &[u8]) -> bool {
    if std::str::from_utf8(text).is_err() {
        return false;
    }
    let mut reader = Reader { text, at: 0 };
    reader.value(0).is_some() && reader.at == text.len()
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    fn value(&mut self, depth: u32) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: u32) -> Option<()> {
        self.at += 1;
        if self.eat(b'}') {
            return Some(());
        }
        let mut last: Option<&[u8]> = None;
        loop {
            let key = self.string()?;
            if last.is_some_and(|last| raw_order(last, key) != Ordering::Less) {
                return None;
            }
            last = Some(key);
            self.eat(b':').then_some(())?;
            self.value(depth + 1)?;
            if self.eat(b'}') {
                return Some(());
            }
            self.eat(b',').then_some(())?;
        }
    }

    fn array(&mut self, depth: u32) -> Option<()> {
        self.at += 1;
        if self.eat(b']') {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            if self.eat(b']') {
                return Some(());
            }
            self.eat(b',').then_some(())?;
        }
    }

    fn number(&mut self) -> Option<()> {
        let negative = self.eat(b'-');
        let rest = &self.text[self.at..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = &rest[..length];
        self.at += length;
        let whole = match digits {
            [] => false,
            [b'0'] => !negative,
            [b'0', ..] => false,
            // Sixteen digits may be too many, fifteen never are.
            _ if length < 16 => true,
            _ => std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse::<u64>().ok())
                .is_some_and(|number| number <= MAX),
        };
        whole.then_some(())
    }

    /// What stands between the quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"').then_some(())?;
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(&self.text[start..self.at - 1]);
                }
                b'\\' => self.escape()?,
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let rest = &self.text[self.at + 1..];
        let length = match rest {
            [b'b' | b't' | b'n' | b'f' | b'r' | b'"' | b'\\', ..] => 2,
            [b'u', b'0', b'0', b'0'..=b'1', b'0'..=b'9' | b'a'..=b'f', ..] => {
                short(unhex(rest)).is_none().then_some(())?;
                6
            }
            _ => return None,
        };
        self.at += length;
        Some(())
    }
}

/// The byte that `u00xy` stands for.
fn unhex(escape: &[u8]) -> u8 {
    escape[3..5].iter().fold(0, |byte, digit| {
        byte * 16
            + match digit {
                b'0'..=b'9' => digit - b'0',
                _ => digit - b'a' + 10,
            }
    })
}

/// As [`order`], of keys that are still quoted.
fn raw_order(a: &[u8], b: &[u8]) -> Ordering {
    if [a, b]
        .iter()
        .all(|key| key.is_ascii() && !key.contains(&b'\\'))
    {
        return a.cmp(b);
    }
    let text = |raw: &[u8]| {
        let quoted = [b"\"", raw, b"\""].concat();
        serde_json::from_slice::<String>(&quoted).unwrap_or_default()
    };
    order(&text(a), &text(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn text(value: &Value) -> String {
        to_canonical(value).expect("canonical")
    }

    #[test]
    fn keys_are_sorted_by_utf_16_and_strings_kept_as_they_are() {
        // The example of RFC 8785, 3.2.3.
        let value = json!({
            "\u{20ac}": "Euro Sign",
            "\r": "Carriage Return",
            "\u{fb33}": "Hebrew Letter Dalet With Dagesh",
            "1": "One",
            "\u{1f600}": "Emoji: Grinning Face",
            "\u{80}": "Control",
            "\u{f6}": "Latin Small Letter O With Diaeresis",
        });
        let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
            \"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",\
            \"\u{1f600}\":\"Emoji: Grinning Face\",\
            \"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
        assert_eq!(text(&value), expected);
        assert!(is_canonical(expected.as_bytes()));
        assert_eq!(
            text(&json!("\u{20ac}$\u{f}\nA'B\"\\\\\"/\u{7f}")),
            "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\u{7f}\""
        );
    }

    #[test]
    fn only_exact_whole_numbers_are_written() {
        assert_eq!(
            text(&json!([0, -1, MAX, -(MAX as i64)])),
            "[0,-1,9007199254740991,-9007199254740991]"
        );
        for number in [
            json!(1.5),
            json!(MAX + 1),
            json!(-(MAX as i64) - 1),
            json!(1e300),
        ] {
            assert!(to_canonical(&number).is_err(), "{number}");
        }
    }

    #[test]
    fn what_is_not_canonical_is_seen() {
        for good in [
            "{}",
            "[]",
            "null",
            "-1",
            "0",
            "[1,2]",
            "\"\\u001f\\n\"",
            "{\"a\":{\"b\":[]}}",
        ] {
            assert!(is_canonical(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            " {}",
            "{} ",
            "{\"a\": 1}",
            "[1, 2]",
            "{\"b\":1,\"a\":2}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,}",
            "[1,]",
            "01",
            "-0",
            "1.0",
            "1e3",
            "+1",
            "-",
            "9007199254740992",
            "\"\\u0041\"",
            "\"\\u000a\"",
            "\"\\u001F\"",
            "\"\\/\"",
            "\"\\x\"",
            "\"\n\"",
            "\"",
            "tru",
            "nul",
            "{\"a\"}",
            "{a:1}",
            "[",
            "{\"\\n\":1,\"\\b\":1}",
            "\"\\u00",
            "\"\\",
            "99999999999999999999999999999999",
        ] {
            assert!(!is_canonical(bad.as_bytes()), "{bad}");
        }
        assert!(!is_canonical(b"\"\xff\""));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(!is_canonical(deep.as_bytes()));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-(MAX as i64)..=MAX as i64).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_canonical_and_reads_back(value in any_value()) {
            let text = text(&value);
            prop_assert!(is_canonical(text.as_bytes()), "{}", text);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("json"), value);
        }

        #[test]
        fn what_is_accepted_is_what_would_be_written(bytes in "[\\[\\]{},:\"a-b\\\\nu0-1-]{0,12}") {
            if is_canonical(bytes.as_bytes()) {
                let value: Value = serde_json::from_str(&bytes).expect("json");
                prop_assert_eq!(text(&value), bytes);
            }
        }
    }
}
