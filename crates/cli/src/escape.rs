//! Output of a sandbox must not drive the terminal it is shown on.
//!
//! What a terminal could act on is replaced by something to read: `␛[31m` for an escape
//! sequence, `\u{202e}` for a character that reorders text, `\x9b` for a byte that is no UTF-8.
//! Tabs, newlines and CR LF stay.

use std::fmt::Write;

use brig_audit::escape::show;
pub use brig_audit::escape::{is_harmful, line};

/// Neutralises a stream piece by piece; where the pieces are cut makes no difference.
#[derive(Debug, Default)]
pub struct Neutraliser {
    /// The start of a character whose rest has not come yet.
    partial: Vec<u8>,
    /// A carriage return that may be the first half of CR LF.
    carriage_return: bool,
}

impl Neutraliser {
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut input = std::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let mut out = String::with_capacity(input.len());
        let mut rest = input.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.text(text, &mut out);
                    break;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.text(&String::from_utf8_lossy(good), &mut out);
                    let Some(length) = error.error_len() else {
                        self.partial = bad.to_vec();
                        break;
                    };
                    self.raw(&bad[..length], &mut out);
                    rest = &bad[length..];
                }
            }
        }
        out
    }

    /// What was held back, once nothing more can come.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        let partial = std::mem::take(&mut self.partial);
        self.raw(&partial, &mut out);
        self.end_line(&mut out);
        out
    }

    fn text(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            if c == '\n' && std::mem::take(&mut self.carriage_return) {
                out.push('\r');
            }
            self.end_line(out);
            match c {
                '\n' | '\t' => out.push(c),
                '\r' => self.carriage_return = true,
                _ => show(c, out),
            }
        }
    }

    fn raw(&mut self, bytes: &[u8], out: &mut String) {
        for byte in bytes {
            self.end_line(out);
            let _ = write!(out, "\\x{byte:02x}");
        }
    }

    /// A carriage return alone would write over what is already on the line.
    fn end_line(&mut self, out: &mut String) {
        if std::mem::take(&mut self.carriage_return) {
            out.push('␍');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> String {
        let mut neutraliser = Neutraliser::default();
        let mut out = neutraliser.push(bytes);
        out.push_str(&neutraliser.finish());
        out
    }

    #[test]
    fn plain_text_is_unchanged() {
        for text in [
            "",
            "hello\n",
            "a\tb\r\nc\n",
            "żółw 🐢 日本語 עברית\n",
            "👩‍👩‍👧\n",
        ] {
            assert_eq!(all(text.as_bytes()), text);
        }
    }

    #[test]
    fn escape_sequences_are_shown_and_not_obeyed() {
        assert_eq!(all(b"\x1b[31mred\x1b[0m"), "␛[31mred␛[0m");
        assert_eq!(all(b"\x1b]0;title\x07"), "␛]0;title␇");
        assert_eq!(all(b"\x1b]52;c;ZXZpbA==\x1b\\"), "␛]52;c;ZXZpbA==␛\\");
        assert_eq!(all(b"a\x08b\x00\x7f"), "a␈b␀␡");
        assert_eq!(
            all("\u{9b}31m\u{90}q\u{9c}".as_bytes()),
            "\\u{9b}31m\\u{90}q\\u{9c}"
        );
        assert_eq!(all(b"\x9b31m\xff"), "\\x9b31m\\xff");
    }

    #[test]
    fn text_cannot_be_reordered_overwritten_or_hidden() {
        assert_eq!(
            all("a\u{202e}b\u{2066}c".as_bytes()),
            "a\\u{202e}b\\u{2066}c"
        );
        assert_eq!(all(b"safe\rEVIL"), "safe␍EVIL");
        assert_eq!(all(b"safe\r"), "safe␍");
        assert_eq!(all(b"a\r\r\nb"), "a␍\r\nb");
        assert_eq!(all("x\u{e0041}".as_bytes()), "x\\u{e0041}");
    }

    #[test]
    fn cutting_the_stream_anywhere_changes_nothing() {
        let input = "a\u{9b}b\r\nc\rd\u{202e}é🐢\x1b[2Je\r".as_bytes();
        let mut input = input.to_vec();
        input.extend_from_slice(b"\xf0\x9f\x90z\xc2\x9b\xe2\x82");
        let whole = all(&input);
        for a in 0..=input.len() {
            for b in a..=input.len() {
                let mut neutraliser = Neutraliser::default();
                let mut out = neutraliser.push(&input[..a]);
                out += &neutraliser.push(&input[a..b]);
                out += &neutraliser.push(&input[b..]);
                out += &neutraliser.finish();
                assert_eq!(out, whole, "cut at {a} and {b}");
            }
        }
    }

    #[test]
    fn no_output_holds_anything_harmful() {
        // Every two-byte input, alone and after an open sequence.
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                for prefix in [&b""[..], b"\xe2\x80", b"\r"] {
                    let out = all(&[prefix, &[first, second]].concat());
                    let bare = out.replace("\r\n", "\n");
                    assert!(
                        bare.chars()
                            .all(|c| c == '\n' || c == '\t' || !is_harmful(c)),
                        "{prefix:?} {first:x} {second:x}: {out:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_message_stays_on_its_line() {
        assert_eq!(line("a\nerror: b\r\t\x1b[0m"), "a␊error: b␍␉␛[0m");
    }
}
