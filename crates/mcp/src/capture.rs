//! What is shown of a stream: its beginning and its end.

use std::collections::VecDeque;

use crate::text;

/// How many bytes of the last line a progress message may have.
const LINE: usize = 200;

#[derive(Debug)]
pub(crate) struct Capture {
    /// How much of the beginning and of the end is shown, in bytes of the program's output.
    most: (usize, usize),
    head: Vec<u8>,
    tail: VecDeque<u8>,
    seen: u64,
}

impl Capture {
    /// Shows so many bytes, most of them from the end: that is where a program says how it went.
    pub(crate) fn new(shown: usize) -> Self {
        Self {
            most: (shown / 4, shown - shown / 4),
            head: Vec::new(),
            tail: VecDeque::new(),
            seen: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let (head, tail) = self.most;
        let (first, rest) = bytes.split_at(bytes.len().min(head - self.head.len()));
        self.head.extend_from_slice(first);
        // Only the end of a large piece can stay.
        let rest = &rest[rest.len().saturating_sub(tail)..];
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(tail);
        self.tail.drain(..excess);
    }

    /// Whether bytes are missing in [`Self::text`], of so many that were written.
    pub(crate) fn is_truncated(&self, total: u64) -> bool {
        total > (self.head.len() + self.tail.len()) as u64
    }

    /// The text, with a marker where bytes are missing.
    pub(crate) fn text(&mut self, total: u64) -> String {
        let tail: &[u8] = self.tail.make_contiguous();
        let omitted = self.seen - (self.head.len() + tail.len()) as u64;
        // Together, so that a character that both have a part of is one.
        let mut text = match omitted {
            0 => text::lines(&[&self.head, tail].concat()),
            _ => {
                let (head, tail) = (text::lines(&self.head), text::lines(tail));
                format!("{head}\n[… {omitted} bytes left out …]\n{tail}")
            }
        };
        if let Some(more @ 1..) = total.checked_sub(self.seen) {
            text.push_str(&format!(
                "\n[… {more} more bytes: over the output limit …]\n"
            ));
        }
        text
    }

    /// The last line that is not empty.
    pub(crate) fn last_line(&self) -> Option<String> {
        let bytes = self
            .tail
            .iter()
            .rev()
            .chain(self.head.iter().rev())
            .copied();
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let bytes = bytes.skip_while(is_space);
        let mut line: Vec<u8> = bytes
            .take_while(|byte| !matches!(byte, b'\n' | b'\r'))
            .take(LINE)
            .collect();
        line.reverse();
        // A character that was cut is left out.
        let start = line.iter().position(|byte| byte & 0xc0 != 0x80);
        let line = &line[start.unwrap_or(line.len())..];
        (!line.is_empty()).then(|| text::lines(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: usize = 32 * 1024;
    const HEAD: usize = SHOWN / 4;

    fn captured(pieces: &[&[u8]]) -> Capture {
        let mut capture = Capture::new(SHOWN);
        pieces.iter().for_each(|piece| capture.push(piece));
        capture
    }

    #[test]
    fn short_output_is_whole() {
        let mut capture = captured(&[b"a\n", b"b\n"]);
        assert_eq!(capture.text(4), "a\nb\n");
        assert!(!capture.is_truncated(4));
        assert_eq!(capture.last_line().as_deref(), Some("b"));
        let mut cut = captured(&[b"a"]);
        assert!(cut.text(10).contains("9 more bytes"));
        assert!(cut.is_truncated(10));
    }

    #[test]
    fn of_long_output_the_ends_stay_however_it_comes() {
        let whole: Vec<u8> = (0..100_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
        let mut at_once = captured(&[&whole]);
        let mut in_pieces = Capture::new(SHOWN);
        whole.chunks(777).for_each(|piece| in_pieces.push(piece));
        let text = at_once.text(100_000);
        assert_eq!(text, in_pieces.text(100_000));
        let left_out = 100_000 - SHOWN;
        assert!(text.contains(&format!("{left_out} bytes left out")));
        assert!(
            text.starts_with("abc")
                && text.ends_with(std::str::from_utf8(&whole[99_990..]).unwrap())
        );
    }

    #[test]
    fn as_much_is_shown_as_is_wanted() {
        for (shown, text) in [
            (0, "\n[… 10 bytes left out …]\n"),
            (1, "\n[… 9 bytes left out …]\n9"),
            (4, "0\n[… 6 bytes left out …]\n789"),
            (10, "0123456789"),
        ] {
            let mut capture = Capture::new(shown);
            b"0123456789"
                .chunks(3)
                .for_each(|piece| capture.push(piece));
            assert_eq!(capture.text(10), text);
        }
    }

    #[test]
    fn a_character_across_the_border_stays_one() {
        let mut bytes = vec![b'x'; HEAD - 1];
        bytes.extend_from_slice("é".as_bytes());
        let mut capture = captured(&[&bytes]);
        assert!(capture.text(bytes.len() as u64).ends_with("xé"));
    }

    #[test]
    fn the_last_line_is_short_and_harmless() {
        assert_eq!(captured(&[]).last_line(), None);
        assert_eq!(captured(&[b"\n \n"]).last_line(), None);
        assert_eq!(
            captured(&[b"10%\r20%\r"]).last_line().as_deref(),
            Some("20%")
        );
        assert_eq!(
            captured(&[b"a\n\x1b[2J\n"]).last_line().as_deref(),
            Some("␛[2J")
        );
        let long = "é".repeat(1000);
        let line = captured(&[long.as_bytes()]).last_line().unwrap();
        assert!(line.len() <= LINE && line.chars().all(|c| c == 'é'));
    }
}
