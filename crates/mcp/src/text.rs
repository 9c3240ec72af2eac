//! Bytes of the sandbox as text that can't mislead: the client may show it on a terminal, and the model may
//! take hidden characters for instructions.

use std::fmt::Write;

use brig_audit::escape::{is_harmful, show};

/// One line.
pub(crate) fn line(text: &str) -> String {
    brig_audit::escape::line(text)
}

/// Lines of text. Line breaks and tabs stay; control characters, characters that nobody sees, and bytes that are
/// not UTF-8 are replaced by visible text.
pub(crate) fn lines(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid().chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '\n' | '\t' => out.push(c),
                '\r' if rest.peek() == Some(&'\n') => {}
                _ => show(c, &mut out),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// The text, if it is one that [`lines`] would not change, but for carriage returns.
pub(crate) fn exact(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let changes = |c: char| is_harmful(c) && !matches!(c, '\n' | '\t' | '\r');
    (!text.chars().any(changes)).then_some(text)
}

/// The name of a file, and whether it differs from the real one.
pub(crate) fn name(raw: &[u8]) -> (String, bool) {
    match std::str::from_utf8(raw) {
        Ok(text) if !text.chars().any(is_harmful) => (text.to_owned(), false),
        _ => (lines(raw).replace('\n', "␊").replace('\t', "␉"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_mislead_is_made_visible() {
        assert_eq!(lines(b"a\tb\r\nc\n"), "a\tb\nc\n");
        assert_eq!(lines(b"\x1b[31mred\r"), "␛[31mred␍");
        assert_eq!(lines(b"\xff\xc3\xa9\xc3"), "\\xffé\\xc3");
        assert_eq!(
            lines("a\u{202e}b\u{e0041}".as_bytes()),
            "a\\u{202e}b\\u{e0041}"
        );
    }

    #[test]
    fn only_harmless_text_is_exact() {
        assert_eq!(exact("é\r\n\t".as_bytes()), Some("é\r\n\t"));
        assert_eq!(exact(b"\x1b"), None);
        assert_eq!(exact(b"\xff"), None);
        assert_eq!(exact("\u{200b}".as_bytes()), None);
    }

    #[test]
    fn a_name_tells_whether_it_is_the_real_one() {
        assert_eq!(name(b"a b.txt"), ("a b.txt".into(), false));
        assert_eq!(name(b"a\nb"), ("a␊b".into(), true));
        assert_eq!(name(b"\xff"), ("\\xff".into(), true));
    }
}
