//! Standard output: exact for a file or a pipe, escaped for a terminal.
//!
//! Nearly everything that Brig prints contains text from others: names of agents, hosts, paths,
//! records, policies. So all of it is written here.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use crate::escape::TextEscaper;
use crate::json;

/// What is written. It decides how characters are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Lines of text.
    Text,
    /// JSON, in which every character can be escaped without changing the value.
    Json,
}

#[derive(Debug)]
pub(crate) struct Stdout {
    out: BufWriter<StdoutLock<'static>>,
    terminal: Option<TerminalEscaper>,
}

impl Stdout {
    pub(crate) fn new(format: OutputFormat) -> Self {
        let stdout = io::stdout();
        Self {
            terminal: stdout.is_terminal().then(|| TerminalEscaper::new(format)),
            out: BufWriter::new(stdout.lock()),
        }
    }

    /// Also writes an incomplete character that was held back.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(escaper) = &mut self.terminal {
            self.out.write_all(escaper.finish().as_bytes())?;
        }
        self.out.flush()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.terminal {
            None => self.out.write_all(bytes)?,
            Some(escaper) => self.out.write_all(escaper.push(bytes).as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Escapes output for a terminal, chunk by chunk.
#[derive(Debug)]
pub(crate) enum TerminalEscaper {
    Text(TextEscaper),
    /// The start of an incomplete character.
    Json(Vec<u8>),
}

impl TerminalEscaper {
    pub(crate) fn new(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Text => Self::Text(TextEscaper::default()),
            OutputFormat::Json => Self::Json(Vec::new()),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        match self {
            Self::Text(escaper) => escaper.push(bytes),
            Self::Json(partial) => {
                partial.extend_from_slice(bytes);
                let end = match std::str::from_utf8(partial) {
                    // Only the last character may be incomplete.
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    _ => partial.len(),
                };
                let rest = partial.split_off(end);
                let whole = std::mem::replace(partial, rest);
                escaped(&String::from_utf8_lossy(&whole))
            }
        }
    }

    pub(crate) fn finish(&mut self) -> String {
        match self {
            Self::Text(escaper) => escaper.finish(),
            Self::Json(partial) => escaped(&String::from_utf8_lossy(&std::mem::take(partial))),
        }
    }
}

/// Newlines separate objects. Within an object they are escaped already.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(json::harmless).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::is_harmful;

    #[test]
    fn json_stays_the_same_without_control_characters() {
        let object = serde_json::json!({ "a\u{9b}": "\u{202e}é\u{200b}\u{1b}[31m\u{e0041}\n" });
        let text = format!("{object}\n{object}\n");
        for cut in 0..text.len() {
            let mut escaper = TerminalEscaper::new(OutputFormat::Json);
            let mut out = escaper.push(&text.as_bytes()[..cut]);
            out += &escaper.push(&text.as_bytes()[cut..]);
            out += &escaper.finish();
            assert!(out.chars().all(|c| c == '\n' || !is_harmful(c)), "{out:?}");
            for line in out.lines() {
                let read: serde_json::Value = serde_json::from_str(line).expect("json");
                assert_eq!(read, object, "cut at {cut}");
            }
            assert_eq!(out.lines().count(), 2);
        }
    }

    #[test]
    fn text_is_escaped() {
        let mut escaper = TerminalEscaper::new(OutputFormat::Text);
        let out = escaper.push("a\u{9b}31m\u{202e}\n".as_bytes()) + &escaper.finish();
        assert_eq!(out, "a\\u{9b}31m\\u{202e}\n");
    }
}
