//! Python's strings may contain halves of surrogate pairs, so they are stored as generalised UTF-8
//! (WTF-8) with the halves included. The order of the bytes is the order of the code points.

use std::fmt::Write;

#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Text(Vec<u8>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl Text {
    pub fn push(&mut self, code: u32) {
        match char::from_u32(code) {
            Some(c) => {
                let mut bytes = [0; 4];
                self.0
                    .extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
            }
            #[expect(clippy::cast_possible_truncation, reason = "a surrogate has 16 bits")]
            None => self.0.extend_from_slice(&[
                0xe0 | (code >> 12) as u8,
                0x80 | (code >> 6 & 0x3f) as u8,
                0x80 | (code & 0x3f) as u8,
            ]),
        }
    }

    pub fn push_str(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// The string, unless it contains half of a pair.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// As `json.dumps` writes it: everything but printable ASCII is escaped.
    pub fn dump(&self, out: &mut String) {
        out.push('"');
        for code in self.codes() {
            match code {
                0x22 => out.push_str("\\\""),
                0x5c => out.push_str("\\\\"),
                0x08 => out.push_str("\\b"),
                0x0c => out.push_str("\\f"),
                0x0a => out.push_str("\\n"),
                0x0d => out.push_str("\\r"),
                0x09 => out.push_str("\\t"),
                0x20..=0x7e => out.extend(char::from_u32(code)),
                0x1_0000.. => {
                    let rest = code - 0x1_0000;
                    escape(0xd800 | rest >> 10, out);
                    escape(0xdc00 | rest & 0x3ff, out);
                }
                _ => escape(code, out),
            }
        }
        out.push('"');
    }

    fn codes(&self) -> impl Iterator<Item = u32> + '_ {
        let mut rest = self.0.iter().copied().map(u32::from);
        std::iter::from_fn(move || {
            let first = rest.next()?;
            let (mut code, more) = match first {
                0..0x80 => (first, 0),
                0x80..0xe0 => (first & 0x1f, 1),
                0xe0..0xf0 => (first & 0x0f, 2),
                _ => (first & 0x07, 3),
            };
            for _ in 0..more {
                code = code << 6 | rest.next()? & 0x3f;
            }
            Some(code)
        })
    }
}

fn escape(unit: u32, out: &mut String) {
    let _ = write!(out, "\\u{unit:04x}");
}
