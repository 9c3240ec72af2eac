//! One object on stdout.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use brig_sandbox::Report;
use serde_json::Value;

use crate::args::JsonForm;
use crate::policy::load;
use crate::{escape, exit};

/// The exit code if an object could not be written.
static FAILED: AtomicU8 = AtomicU8::new(0);

/// The exit code, if an object could not be written.
pub(crate) fn failed() -> Option<u8> {
    match FAILED.load(Ordering::Relaxed) {
        0 => None,
        code => Some(code),
    }
}

pub(crate) fn print(object: &Value) {
    emit(|out| Ok(serde_json::to_writer(out, object)?));
}

/// The object of an execution that took place. Its output is not copied.
/// `error`: how its sandbox was lost, or null.
pub(crate) fn print_report(report: &Report, denials: Value, error: Value, form: JsonForm) {
    let event = (form == JsonForm::Stream).then(|| ("event", "end".into()));
    let own = [
        ("denials", denials),
        ("problems", load::problems()),
        ("error", error),
    ];
    let more = own.into_iter().chain(event);
    emit(|out| report.write_json(more, out));
}

/// On a terminal, control characters that JSON does not escape, such as U+009B, are escaped too. The
/// object stays the same.
fn emit(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let stdout = io::stdout().lock();
    let terminal = stdout.is_terminal();
    let mut out = BufWriter::with_capacity(64 * 1024, stdout);
    let written = if terminal {
        write(&mut EscapingWriter::new(&mut out))
    } else {
        write(&mut out)
    };
    let written = written
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    if let Err(error) = written {
        // Not written again when it is dropped.
        let _ = out.into_parts();
        FAILED.store(exit::of_unwritten(&error), Ordering::Relaxed);
    }
}

/// Escapes terminal control characters in the JSON that passes through.
struct EscapingWriter<W> {
    to: W,
    /// The start of an incomplete character.
    begun: Vec<u8>,
}

impl<W: Write> EscapingWriter<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            begun: Vec::new(),
        }
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let now = std::mem::take(&mut self.begun);
        let whole = match std::str::from_utf8(&now) {
            Ok(_) => now.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = std::str::from_utf8(&now[..whole]).map_err(io::Error::other)?;
        self.to.write_all(harmless(text).as_bytes())?;
        self.begun = now[whole..].to_vec();
        if self.begun.len() > 3 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The same JSON, with terminal control characters escaped.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if escape::is_harmful(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_for_a_terminal_keeps_the_meaning() {
        let object = serde_json::json!({ "out": "a\u{9b}31m\u{202e}\u{7f}\u{e0041}\u{1b}é" });
        let text = object.to_string();
        // However it is cut into pieces.
        for piece in 1..9 {
            let mut out = Vec::new();
            let mut writer = EscapingWriter::new(&mut out);
            for bytes in text.as_bytes().chunks(piece) {
                writer.write_all(bytes).unwrap();
            }
            let text = String::from_utf8(out).unwrap();
            assert!(text.chars().all(|c| !escape::is_harmful(c)));
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
        }
        let mut out = Vec::new();
        assert!(
            EscapingWriter::new(&mut out)
                .write_all(b"\xff\xff\xff\xff")
                .is_err()
        );
    }
}
