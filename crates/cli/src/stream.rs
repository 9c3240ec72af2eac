//! `--json=stream`: one line of JSON for each event, as it happens.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brig_audit::{Event, Record};
use brig_sandbox::ExecutionId;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::json;

/// Makes the lines. Text is never cut within a character.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a character, for stdout and stderr.
    partial: [Vec<u8>; 2],
    /// Whether terminal control characters are escaped.
    terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

impl Lines {
    pub(crate) fn new(terminal: bool) -> Self {
        Self {
            terminal,
            ..Self::default()
        }
    }

    pub(crate) fn started(&self, id: &ExecutionId) -> Bytes {
        self.line(&json!({ "event": "start", "execution_id": id }))
    }

    /// Nothing if it is only the beginning of a character.
    pub(crate) fn output(&mut self, stream: Stream, bytes: &[u8]) -> Bytes {
        let partial = &mut self.partial[stream as usize];
        partial.extend_from_slice(bytes);
        let end = match std::str::from_utf8(partial) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => partial.len(),
        };
        let rest = partial.split_off(end);
        let whole = std::mem::replace(partial, rest);
        self.piece(stream, &whole)
    }

    /// What was held back.
    pub(crate) fn finish(&mut self) -> Bytes {
        let [stdout, stderr] = std::mem::take(&mut self.partial);
        let lines = [
            self.piece(Stream::Stdout, &stdout),
            self.piece(Stream::Stderr, &stderr),
        ];
        lines.concat().into()
    }

    /// What the program requested of the network, commands or tools. Nothing for other records.
    pub(crate) fn attempt(&self, record: &Record) -> Bytes {
        let (kind, fields) = match &record.event {
            Event::EgressDecided(egress) => ("network", json!(egress)),
            Event::CommandAttempted(command) => ("command", json!(command)),
            Event::ToolCalled(tool) => ("tool", json!(tool)),
            Event::ApprovalRequested(asked) => ("approval", json!(asked)),
            Event::ApprovalAnswered(approval) => ("approval", json!(approval)),
            _ => return Bytes::new(),
        };
        let mut line = fields;
        line["event"] = json!("attempt");
        line["kind"] = json!(kind);
        self.line(&line)
    }

    fn piece(&self, stream: Stream, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        let (encoding, data) = match std::str::from_utf8(bytes) {
            Ok(text) => ("utf-8", text.to_owned()),
            Err(_) => ("base64", STANDARD.encode(bytes)),
        };
        self.line(&json!({ "event": stream.name(), "encoding": encoding, "data": data }))
    }

    fn line(&self, line: &Value) -> Bytes {
        let mut text = line.to_string();
        if self.terminal {
            text = json::harmless(&text);
        }
        text.push('\n');
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &Bytes) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn text_is_not_cut_and_bytes_are_not_lost() {
        let mut lines = Lines::default();
        let text = "aé🐢z".as_bytes();
        let mut all = String::new();
        for at in 0..text.len() {
            for line in read(&lines.output(Stream::Stdout, &text[at..=at])) {
                assert_eq!(line["encoding"], "utf-8");
                all.push_str(line["data"].as_str().unwrap());
            }
        }
        assert_eq!(all, "aé🐢z");
        assert_eq!(lines.finish(), Bytes::new());

        let line = &read(&lines.output(Stream::Stderr, b"a\xffb"))[0];
        assert_eq!(line["event"], "stderr");
        assert_eq!(
            (&line["encoding"], &line["data"]),
            (&json!("base64"), &json!("Yf9i"))
        );
        // Half a character at the end.
        assert_eq!(lines.output(Stream::Stdout, b"\xc3"), Bytes::new());
        assert_eq!(read(&lines.finish())[0]["data"], "ww==");
    }

    #[test]
    fn a_terminal_is_not_driven() {
        let mut lines = Lines::new(true);
        let bytes = lines.output(Stream::Stdout, "\u{9b}31m\u{202e}".as_bytes());
        let text = std::str::from_utf8(&bytes).unwrap();
        let harmful = |c: char| c != '\n' && crate::escape::is_harmful(c);
        assert!(!text.chars().any(harmful), "{text:?}");
        assert_eq!(read(&bytes)[0]["data"], "\u{9b}31m\u{202e}");
    }
}
