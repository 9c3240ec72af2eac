//! Canonical JSON (RFC 8785), without fractions: only integers that a double represents exactly.
//!
//! Every record is written and checked with it, on the path of every execution. Crates for RFC 8785
//! (`serde_jcs`, `serde_json_canonicalizer`) allocate a map for every object to sort its keys, and can't
//! check that a text is canonical. Fractions are refused, so the hard part of the RFC is not needed.

mod write;

use std::cmp::Ordering;

use serde::Serialize;

/// The largest whole number that every JSON reader keeps exact.
pub const MAX: u64 = (1 << 53) - 1;
/// Deeper than any record.
const DEPTH: u32 = 32;

/// Why a value has no canonical text. A record with such a value is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotCanonical {
    /// A fraction, or beyond ±[`MAX`].
    #[error("the number `{0}` is not an integer, or too large to be represented exactly")]
    Number(String),
    /// Two fields of one object would get the same key.
    #[error("two fields have the same name")]
    Twice,
    /// The value could not be serialized. Contains the error of the serializer.
    #[error("cannot be written as JSON: {0}")]
    Json(String),
}

/// The one text of a value.
pub fn to_canonical(value: &(impl Serialize + ?Sized)) -> Result<String, NotCanonical> {
    let mut buffer = write::Buffer::default();
    buffer.add(value)?;
    Ok(buffer.text)
}

/// The texts of several values, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    buffer: write::Buffer,
    ends: Vec<usize>,
}

impl Texts {
    /// With room for so many records.
    pub(crate) fn with_room(records: usize) -> Self {
        let mut texts = Self::default();
        texts.buffer.text.reserve(records * 1024);
        texts
    }

    /// Adds the text of a value and returns its length.
    pub(crate) fn add(&mut self, value: &(impl Serialize + ?Sized)) -> Result<usize, NotCanonical> {
        let start = self.buffer.text.len();
        self.buffer.add(value)?;
        self.ends.push(self.buffer.text.len());
        Ok(self.buffer.text.len() - start)
    }

    /// Puts another text in place of the one that was added last.
    pub(crate) fn replace_last(&mut self, text: &str) {
        self.ends.pop();
        let start = self.ends.last().copied().unwrap_or(0);
        self.buffer.text.truncate(start);
        self.buffer.text.push_str(text);
        self.ends.push(self.buffer.text.len());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let pieces = starts.zip(&self.ends);
        pieces.map(|(start, end)| &self.buffer.text[*start..*end])
    }
}

/// Keys are sorted by UTF-16 code units.
fn order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        return a.cmp(b);
    }
    a.encode_utf16().cmp(b.encode_utf16())
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
pub fn is_canonical(text: &str) -> bool {
    let text = text.as_bytes();
    let mut reader = Reader { text, at: 0 };
    reader.value(0).is_some() && reader.at == text.len()
}

/// Whether no byte needs an escape in a string. In blocks of eight, for speed.
fn is_plain(bytes: &[u8]) -> bool {
    let special = |byte: &u8| (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\');
    let any = |piece: &[u8; 16]| piece.iter().fold(false, |any, byte| any | special(byte));
    let (pieces, rest) = bytes.as_chunks::<16>();
    if pieces.iter().any(any) {
        return false;
    }
    let (pieces, rest) = rest.as_chunks::<8>();
    let special = |piece: &[u8; 8]| {
        let word = u64::from_ne_bytes(*piece);
        below_space(word) | equal(word, b'"') | equal(word, b'\\')
    };
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    special(&last) | pieces.first().map_or(0, special) == 0
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = ONES << 7;

/// Not 0 if one of the eight bytes is this one, which is below 128.
fn equal(word: u64, byte: u8) -> u64 {
    let different = word ^ (ONES * u64::from(byte));
    different.wrapping_sub(ONES) & !different & HIGH
}

/// Not 0 if one of the eight bytes is below 32.
fn below_space(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGH
}

/// Bytes that need no escape in a string.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain
};

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

    /// The text between the quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"').then_some(())?;
        let start = self.at;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.iter().take_while(|byte| PLAIN[usize::from(**byte)]);
            self.at += plain.count();
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(&self.text[start..self.at - 1]);
                }
                b'\\' => self.escape()?,
                _ => return None,
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

/// The byte that `u00xy` encodes.
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
    // Nearly always the first difference is between two plain letters, and decides.
    let plain = |byte: u8| byte.is_ascii() && byte != b'\\';
    let mut pairs = a.iter().zip(b);
    match pairs.find(|(a, b)| a != b || **a == b'\\') {
        Some((a, b)) if plain(*a) && plain(*b) => return a.cmp(b),
        Some(_) => {}
        None => return a.len().cmp(&b.len()),
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
    use serde_json::{Value, json};

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
        assert!(is_canonical(expected));
        assert_eq!(
            text(&json!("\u{20ac}$\u{f}\nA'B\"\\\\\"/\u{7f}")),
            "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\u{7f}\""
        );
    }

    #[test]
    fn only_exact_whole_numbers_are_written() {
        assert_eq!(
            text(&json!([0, -1, MAX, -MAX.cast_signed()])),
            "[0,-1,9007199254740991,-9007199254740991]"
        );
        for number in [
            json!(1.5),
            json!(MAX + 1),
            json!(-MAX.cast_signed() - 1),
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
            assert!(is_canonical(good), "{good}");
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
            assert!(!is_canonical(bad), "{bad}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(!is_canonical(&deep));
    }

    #[test]
    fn every_shape_of_data_is_written() {
        #[derive(Serialize)]
        enum Shape {
            Unit,
            New(u8),
            Tuple(u8, bool),
            Struct { z: Option<char>, a: () },
        }
        let all = [
            Shape::Unit,
            Shape::New(1),
            Shape::Tuple(2, true),
            Shape::Struct { z: None, a: () },
            Shape::Struct {
                z: Some('z'),
                a: (),
            },
        ];
        assert_eq!(
            to_canonical(&all).expect("canonical"),
            "[\"Unit\",{\"New\":1},{\"Tuple\":[2,true]},{\"Struct\":{\"a\":null,\"z\":null}},\
             {\"Struct\":{\"a\":null,\"z\":\"z\"}}]"
        );
    }

    #[test]
    fn no_name_is_written_twice() {
        #[derive(Serialize)]
        struct Twice {
            a: u8,
            #[serde(rename = "a")]
            b: u8,
        }
        assert!(to_canonical(&Twice { a: 1, b: 2 }).is_err());
    }

    #[test]
    fn plain_bytes_are_recognized_at_any_position() {
        for byte in 0..=255_u8 {
            for length in 1..40 {
                for place in 0..length {
                    let mut bytes = vec![b'~'; length];
                    bytes[place] = byte;
                    let plain = PLAIN[usize::from(byte)];
                    assert_eq!(is_plain(&bytes), plain, "{byte} at {place} of {length}");
                }
            }
        }
        assert!(is_plain(b""));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-MAX.cast_signed()..=MAX.cast_signed()).prop_map(Value::from),
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
            prop_assert!(is_canonical(&text), "{}", text);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("json"), value);
        }

        #[test]
        fn what_is_accepted_is_what_would_be_written(bytes in "[\\[\\]{},:\"a-b\\\\nu0-1-]{0,12}") {
            if is_canonical(&bytes) {
                let value: Value = serde_json::from_str(&bytes).expect("json");
                prop_assert_eq!(text(&value), bytes);
            }
        }
    }
}
