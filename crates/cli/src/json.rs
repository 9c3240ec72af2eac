//! One object on stdout.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use serde_json::Value;

use crate::escape;

/// On a terminal what JSON leaves as it is, such as U+009B, is escaped too; it stays the same
/// object.
pub fn print(object: &Value) {
    let mut stdout = std::io::stdout().lock();
    let mut text = object.to_string();
    if stdout.is_terminal() {
        text = harmless(&text);
    }
    // A reader that went away wants no more.
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// The same JSON, with everything escaped that could drive a terminal.
pub fn harmless(text: &str) -> String {
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
        let text = harmless(&object.to_string());
        assert!(text.chars().all(|c| !escape::is_harmful(c)));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
    }
}
