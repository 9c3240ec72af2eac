//! `str()` and `repr()`: what a pattern is searched in when the value is not text.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::Value;
use crate::unicode;

impl Value {
    /// `str(self)`.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Value::Text(text) => Cow::Borrowed(text),
            _ => {
                let mut out = String::new();
                self.write_repr(&mut out);
                Cow::Owned(out)
            }
        }
    }

    /// `repr(self)`.
    pub fn repr(&self) -> String {
        let mut out = String::new();
        self.write_repr(&mut out);
        out
    }

    fn write_repr(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("None"),
            Value::Bool(true) => out.push_str("True"),
            Value::Bool(false) => out.push_str("False"),
            Value::Int(value) => write_display(out, value),
            Value::Big(value) => write_display(out, value),
            Value::Float(value) => write_float(out, *value),
            Value::Text(text) => write_text(out, text),
            Value::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    item.write_repr(out);
                }
                out.push(']');
            }
            Value::Map(map) => {
                out.push('{');
                for (at, (key, value)) in map.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    write_text(out, key);
                    out.push_str(": ");
                    value.write_repr(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_display(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a String takes any text");
}

/// The shortest digits that give the float back, in Python's layout.
pub(crate) fn write_float(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("nan");
        return;
    }
    if value.is_sign_negative() {
        out.push('-');
    }
    if value.is_infinite() {
        out.push_str("inf");
        return;
    }
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if !(-4..16).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        write_display(
            out,
            format_args!("{first}{dot}{rest}e{sign}{:02}", exponent.unsigned_abs()),
        );
        return;
    }
    if exponent < 0 {
        out.push_str("0.");
        for _ in 1..exponent.unsigned_abs() {
            out.push('0');
        }
        out.push_str(&digits);
        return;
    }
    let whole = exponent.unsigned_abs() as usize + 1;
    if digits.len() > whole {
        let (before, after) = digits.split_at(whole);
        write_display(out, format_args!("{before}.{after}"));
    } else {
        write_display(out, format_args!("{digits:0<whole$}.0"));
    }
}

fn write_text(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if unicode::is_printable(c) => out.push(c),
            _ => match u32::from(c) {
                code @ 0..=0xff => write_display(out, format_args!("\\x{code:02x}")),
                code @ 0x100..=0xffff => write_display(out, format_args!("\\u{code:04x}")),
                code => write_display(out, format_args!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_as_in_python() {
        // Each pair was printed by Python 3.11.
        let pairs = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (4096.0, "4096.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (1e22, "1e+22"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (123.456, "123.456"),
        ];
        for (value, text) in pairs {
            assert_eq!(Value::Float(value).to_text(), text);
        }
    }

    #[test]
    fn lists_and_maps_show_their_parts() {
        let list = Value::List(vec![
            Value::Bool(true),
            "it's".into(),
            "a\n\u{e9}\u{0}\u{200b}\u{1f600}".into(),
            "'\"".into(),
            Value::Null,
        ]);
        assert_eq!(
            list.to_text(),
            r#"[True, "it's", 'a\né\x00\u200b😀', '\'"', None]"#
        );
        let map = Value::Map(
            [("k", Value::Int(1)), ("z", "y".into())]
                .into_iter()
                .collect(),
        );
        assert_eq!(map.to_text(), "{'k': 1, 'z': 'y'}");
        assert_eq!(Value::from("plain").to_text(), "plain");
    }
}
