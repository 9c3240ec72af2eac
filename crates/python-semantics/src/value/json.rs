//! JSON text: compact with sorted keys for digests, indented for people.
//!
//! `serde_json` can't write it: it rounds integers beyond 64 bits, and digests need floats
//! as Python prints them.

use std::fmt::Write as _;

use super::Value;
use super::text::write_float;

impl Value {
    /// Compact, with sorted keys.
    pub fn write_json(&self, out: &mut String) {
        write_json(out, self);
    }

    /// Indented, with keys in the order in which they were given.
    pub fn to_pretty_json(&self) -> String {
        let mut out = String::new();
        write_pretty(&mut out, self, 0);
        out
    }
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => write!(out, "{value}").expect("a String takes any text"),
        Value::Big(value) => write!(out, "{value}").expect("a String takes any text"),
        Value::Float(value) => write_float(out, *value),
        Value::Text(text) => write_text(out, text),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (at, (key, value)) in map.iter_sorted().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_text(out, key);
                out.push(':');
                write_json(out, value);
            }
            out.push('}');
        }
    }
}

fn write_pretty(out: &mut String, value: &Value, depth: usize) {
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        for _ in 0..depth {
            out.push_str("  ");
        }
    };
    match value {
        Value::List(items) if !items.is_empty() => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                write_pretty(out, item, depth + 1);
            }
            line(out, depth);
            out.push(']');
        }
        Value::Map(map) if !map.is_empty() => {
            out.push('{');
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                write_text(out, key);
                out.push_str(": ");
                write_pretty(out, value, depth + 1);
            }
            line(out, depth);
            out.push('}');
        }
        other => write_json(out, other),
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("a String takes any text");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
