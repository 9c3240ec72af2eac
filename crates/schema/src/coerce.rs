//! Values that pydantic coerces to the type of a field.

use brig_python_semantics::Value;

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

pub(super) fn as_float(value: &Value) -> f64 {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "limits need no 64 bits")]
        Value::Int(value) => *value as f64,
        value => value.to_text().parse().unwrap_or(f64::NAN),
    }
}

pub(super) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        Value::Float(value) if *value == 0.0 => Some(false),
        Value::Float(value) if *value == 1.0 => Some(true),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
            "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
            _ => None,
        },
        _ => None,
    }
}

/// Single underscores between digits are allowed, as in Python's own literals.
fn without_underscores(text: &str) -> Option<String> {
    let text = text.trim();
    let bad = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    (!bad).then(|| text.replace('_', ""))
}

pub(super) fn integer(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(value) => Some(Value::Int(i64::from(*value))),
        // Beyond that, pydantic refuses it as well.
        Value::Float(value) if value.fract() == 0.0 && value.abs() < TWO_TO_63 => {
            Value::integer(&format!("{value:.0}"))
        }
        Value::Text(text) => {
            let text = text.trim();
            let whole = match text.split_once('.') {
                Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => {
                    whole
                }
                Some(_) => return None,
                None => text,
            };
            let digits = whole.strip_prefix(['-', '+']).unwrap_or(whole);
            if !digits.starts_with(|c: char| c.is_ascii_digit()) {
                return None;
            }
            Value::integer(&without_underscores(whole)?)
        }
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Text(text) => without_underscores(text)?.parse().ok(),
        _ => None,
    }
}
