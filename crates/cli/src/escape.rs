//! Output of a sandbox must not control the terminal that shows it.
//!
//! Control characters are replaced by visible text: `␛[31m` for an escape sequence, `\u{202e}` for a
//! character that reorders text, `\x9b` for a byte that is not UTF-8. Tabs, newlines and CR LF stay.

use std::fmt::Write;

use brig_audit::escape::show;
pub(crate) use brig_audit::escape::{is_harmful, line};

/// A word that a shell reads back as this text, if that has no control characters.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Escapes a stream chunk by chunk. The result does not depend on where chunks end.
#[derive(Debug, Default)]
pub(crate) struct TextEscaper {
    /// The start of an incomplete character.
    partial: Vec<u8>,
    /// A carriage return that may be the first half of CR LF.
    carriage_return: bool,
}

impl TextEscaper {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
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

    /// What was held back, after the last chunk.
    pub(crate) fn finish(&mut self) -> String {
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

    /// A carriage return alone would overwrite the line.
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
        let mut escaper = TextEscaper::default();
        let mut out = escaper.push(bytes);
        out.push_str(&escaper.finish());
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
                let mut escaper = TextEscaper::default();
                let mut out = escaper.push(&input[..a]);
                out += &escaper.push(&input[a..b]);
                out += &escaper.push(&input[b..]);
                out += &escaper.finish();
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
    fn a_word_for_a_shell_is_quoted_if_it_must_be() {
        assert_eq!(shell_word("pypi.org:443"), "pypi.org:443");
        assert_eq!(shell_word("*.pypi.org"), "'*.pypi.org'");
        assert_eq!(shell_word("[::1]:80"), "'[::1]:80'");
        assert_eq!(shell_word("it's $x"), r"'it'\''s $x'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_message_stays_on_its_line() {
        assert_eq!(line("a\nerror: b\r\t\x1b[0m"), "a␊error: b␍␉␛[0m");
    }
}
