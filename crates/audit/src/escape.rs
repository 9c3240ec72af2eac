//! What was recorded was written by others, and must not drive the terminal it is shown on.

use std::fmt::Write;

/// One line of text: nothing in it can break out of the line.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| show(c, &mut out));
    out
}

/// As [`line`], with an ellipsis in place of what goes beyond `width` characters. `all` says
/// whether `text` is complete.
pub(crate) fn shorten(text: &str, width: usize, all: bool) -> String {
    let mut out = String::new();
    let mut used = 0;
    let mut rest = text.chars().peekable();
    let mut piece = String::new();
    while let Some(c) = rest.next() {
        piece.clear();
        show(c, &mut piece);
        let length = piece.chars().count();
        let last = all && rest.peek().is_none();
        if used + length + usize::from(!last) > width {
            out.push('…');
            return out;
        }
        used += length;
        out.push_str(&piece);
    }
    if !all {
        out.push('…');
    }
    out
}

/// Whether a terminal, or the reader's eye, could be misled by this character.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200e}' | '\u{200f}' // direction marks
            // Nothing to see: two names that look the same would differ. Joiners stay, for
            // scripts and emoji that need them.
            | '\u{00ad}' | '\u{034f}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{feff}'
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // fillers
            | '\u{2028}'..='\u{202e}' // line separators, direction embeddings and overrides
            | '\u{2066}'..='\u{206f}' // direction isolates, deprecated shaping controls
            | '\u{fff9}'..='\u{fffb}' // annotations: hidden text
            | '\u{e0000}'..='\u{e0fff}' // tags, and selectors that nobody sees: hidden text
        )
}

/// Something to read in place of something to obey.
pub fn show(c: char, out: &mut String) {
    match c {
        '\u{0}'..='\u{1f}' => out.extend(char::from_u32(0x2400 + u32::from(c))),
        '\u{7f}' => out.push('␡'),
        _ if is_harmful(c) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
        _ => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(
            line("a\nb\r\t\x1b[0m\u{202e}\u{9b}"),
            "a␊b␍␉␛[0m\\u{202e}\\u{9b}"
        );
        assert_eq!(line("żółw 🐢"), "żółw 🐢");
        assert_eq!(
            line("a\u{200b}\u{feff}\u{ad}b"),
            "a\\u{200b}\\u{feff}\\u{ad}b"
        );
    }

    #[test]
    fn shortening_counts_what_is_shown() {
        assert_eq!(shorten("abcd", 4, true), "abcd");
        assert_eq!(shorten("abcde", 4, true), "abc…");
        assert_eq!(shorten("abc", 4, false), "abc…");
        assert_eq!(shorten("ab\u{202e}", 4, true), "ab…");
        assert_eq!(shorten("", 4, true), "");
    }
}
