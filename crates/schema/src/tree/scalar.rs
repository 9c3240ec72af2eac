//! What an unquoted word of YAML means. The two versions of YAML disagree about some; those are
//! refused, because the author meant one of the two.

use brig_python_semantics::{MAX_DIGITS, Value};
use brig_reason::ReasonCode;

use super::Compat;
use crate::problem::{Fault, quoted};

#[cfg(test)]
mod tests;

/// The meaning of a word, or what is wrong with it.
pub(super) fn resolve(word: &str, compat: Compat) -> Result<Value, Fault> {
    if is_surely_text(word) {
        return Ok(word.into());
    }
    if is_too_long(word) {
        let start: String = word.chars().take(20).collect();
        return Err(Fault::new(
            ReasonCode::PolicyRange,
            format!("`{start}…` is too long for a number"),
        )
        .fix("quote it if it is text"));
    }
    let (new, old) = (core(word), legacy(word));
    match (compat, old) {
        (_, Legacy::Value(old)) if same(&old, &new) => Ok(new),
        (Compat::Agt, Legacy::Value(old)) => Ok(old),
        (Compat::Agt, Legacy::Unknown(what)) => Err(Fault::new(
            ReasonCode::PolicyYaml,
            format!("{} is {what} to YAML 1.1", quoted(word)),
        )
        .fix(format!("quote it: \"{word}\""))),
        (Compat::Strict, old) => Err(ambiguous(word, &new, &old)),
    }
}

fn ambiguous(word: &str, new: &Value, old: &Legacy) -> Fault {
    let old = match old {
        Legacy::Value(value @ Value::Text(_)) => value.kind().to_owned(),
        Legacy::Value(value) => format!("{} ({})", value.kind(), shown(value)),
        Legacy::Unknown(what) => (*what).to_owned(),
    };
    let new = match new {
        Value::Text(_) => "text".to_owned(),
        value => format!("{} ({})", value.kind(), shown(value)),
    };
    let fix = match old.as_str() {
        "a boolean (true)" => format!("write `true`, or \"{word}\" for text"),
        "a boolean (false)" => format!("write `false`, or \"{word}\" for text"),
        _ => format!("write \"{word}\" for text, or the number in plain decimal digits"),
    };
    Fault::new(
        ReasonCode::PolicyAmbiguous,
        format!(
            "{} is {old} to YAML 1.1 and {new} to YAML 1.2",
            quoted(word)
        ),
    )
    .fix(fix)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        value => value.repr(),
    }
}

/// Equal, and of the same kind.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        _ => a == b,
    }
}

fn is_surely_text(word: &str) -> bool {
    !matches!(
        word.as_bytes().first(),
        None | Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'~' | b'=' | b'<')
            | Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O')
    )
}

fn is_null(word: &str) -> bool {
    matches!(word, "" | "~" | "null" | "Null" | "NULL")
}

fn core_bool(word: &str) -> Option<bool> {
    match word {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// YAML 1.2, core schema.
fn core(word: &str) -> Value {
    if is_null(word) {
        return Value::Null;
    }
    if let Some(value) = core_bool(word) {
        return Value::Bool(value);
    }
    let (sign, digits) = split_sign(word);
    if is_digits(digits) {
        return Value::integer(word).unwrap_or_else(|| word.into());
    }
    if sign.is_empty() {
        let based = |prefix, radix| {
            let digits: &str = word.strip_prefix(prefix)?;
            from_radix(digits, radix, false)
        };
        if let Some(value) = based("0o", 8).or_else(|| based("0x", 16)) {
            return value;
        }
    }
    if let Some(value) = special_float(word) {
        return Value::Float(value);
    }
    if is_core_float(digits)
        && let Ok(value) = word.parse()
    {
        return Value::Float(value);
    }
    word.into()
}

enum Legacy {
    Value(Value),
    /// A kind of value that a policy has no use for.
    Unknown(&'static str),
}

/// YAML 1.1, as PyYAML reads it.
fn legacy(word: &str) -> Legacy {
    let value = |value| Legacy::Value(value);
    if is_null(word) {
        return value(Value::Null);
    }
    match word {
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return value(Value::Bool(true)),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" => return value(Value::Bool(false)),
        "=" => return Legacy::Unknown("a default value"),
        "<<" => return Legacy::Unknown("a merge"),
        _ => {}
    }
    if let Some(found) = core_bool(word) {
        return value(Value::Bool(found));
    }
    if is_timestamp(word) {
        return Legacy::Unknown("a date");
    }
    if is_wide_sexagesimal(word) {
        return Legacy::Unknown("a number in base 60 that is too large");
    }
    legacy_integer(word)
        .or_else(|| legacy_float(word))
        .map_or_else(|| value(word.into()), value)
}

fn legacy_integer(word: &str) -> Option<Value> {
    let (sign, rest) = split_sign(word);
    let negative = sign == "-";
    if let Some(bits) = rest.strip_prefix("0b") {
        return from_radix(bits, 2, negative);
    }
    if let Some(digits) = rest.strip_prefix("0x") {
        return from_radix(digits, 16, negative);
    }
    if rest.len() > 1 && rest.starts_with('0') {
        return from_radix(rest, 8, negative);
    }
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some((first, _)) = rest.split_once(':') {
        let grouped = !first.starts_with('0') && is_digits_or_underscores(first);
        let parts: Vec<&str> = rest.split(':').collect();
        let sixties = parts[1..].iter().all(|part| is_sixtieth(part));
        if !grouped || !sixties {
            return None;
        }
        let mut total: i64 = 0;
        for part in parts {
            let part: i64 = part.replace('_', "").parse().ok()?;
            total = total.checked_mul(60)?.checked_add(part)?;
        }
        return Some(Value::Int(if negative { -total } else { total }));
    }
    is_digits_or_underscores(rest)
        .then(|| Value::integer(&word.replace('_', "")))
        .flatten()
}

/// In base 60, and beyond 64 bits.
fn is_wide_sexagesimal(word: &str) -> bool {
    let rest = split_sign(word).1;
    let mut parts = rest.split(':');
    let first = parts.next().unwrap_or_default();
    let based = rest.contains(':')
        && !first.starts_with('0')
        && is_digits_or_underscores(first)
        && parts.all(is_sixtieth);
    based && legacy_integer(word).is_none()
}

fn legacy_float(word: &str) -> Option<Value> {
    if let Some(value) = special_float(word) {
        return Some(Value::Float(value));
    }
    let (sign, rest) = split_sign(word);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['+', '-'])?;
        if !is_digits(digits) {
            return None;
        }
    }
    let (whole, part) = mantissa.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if !plain(part) {
        return None;
    }
    if whole.contains(':') && exponent.is_none() {
        let mut parts = whole.split(':');
        let first = parts.next().unwrap_or_default();
        if !is_digits_or_underscores(first) || !parts.clone().all(is_sixtieth) {
            return None;
        }
        let mut total: f64 = first.replace('_', "").parse().ok()?;
        for part in parts {
            total = total * 60.0 + part.parse::<f64>().ok()?;
        }
        let part: f64 = format!("0.{}", part.replace('_', "")).parse().ok()?;
        let total = total + part;
        return Some(Value::Float(if sign == "-" { -total } else { total }));
    }
    let valid = if whole.is_empty() {
        sign.is_empty() && part.starts_with(|c: char| c.is_ascii_digit())
    } else {
        is_digits_or_underscores(whole)
    };
    valid
        .then(|| word.replace('_', "").parse().ok().map(Value::Float))
        .flatten()
}

fn special_float(word: &str) -> Option<f64> {
    match word {
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    let (sign, rest) = split_sign(word);
    matches!(rest, ".inf" | ".Inf" | ".INF").then_some(if sign == "-" {
        f64::NEG_INFINITY
    } else {
        f64::INFINITY
    })
}

fn is_core_float(rest: &str) -> bool {
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let exponent_is_sound = exponent.is_none_or(|text| is_digits(split_sign(text).1));
    let mantissa_is_sound = match mantissa.split_once('.') {
        Some(("", part)) => is_digits(part),
        Some((whole, part)) => is_digits(whole) && (part.is_empty() || is_digits(part)),
        None => is_digits(mantissa),
    };
    exponent_is_sound && mantissa_is_sound
}

fn is_timestamp(word: &str) -> bool {
    let bytes = word.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if !(0..4).all(digit) || bytes.get(4) != Some(&b'-') {
        return false;
    }
    // A date, or a date with a time after it: both start so.
    let rest = &word[5..];
    let mut parts = rest.splitn(2, '-');
    let (month, rest) = (parts.next().unwrap_or_default(), parts.next());
    let day: String = rest
        .unwrap_or_default()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let after = rest
        .unwrap_or_default()
        .get(day.len()..)
        .unwrap_or_default();
    let short = |text: &str| is_digits(text) && text.len() <= 2;
    if !short(month) || !short(&day) {
        return false;
    }
    if after.is_empty() {
        return month.len() == 2 && day.len() == 2;
    }
    after.starts_with(['T', 't', ' ', '\t']) && after.contains(':')
}

fn split_sign(word: &str) -> (&str, &str) {
    match word.as_bytes().first() {
        Some(b'+' | b'-') => word.split_at(1),
        _ => ("", word),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_digits_or_underscores(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

fn is_sixtieth(text: &str) -> bool {
    matches!(text.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
}

/// Longer numbers in other bases are not read.
const MAX_RADIX_DIGITS: usize = 1024;

const BASES: [(&str, u32); 3] = [("0x", 16), ("0o", 8), ("0b", 2)];

/// A number to somebody, and longer than what is read exactly. Taking it for text would turn a
/// comparison of numbers into one of texts.
fn is_too_long(word: &str) -> bool {
    if word.len() <= MAX_RADIX_DIGITS {
        return false;
    }
    let rest = split_sign(word).1;
    let all = |digits: &str, radix: u32| digits.chars().all(|c| c.is_digit(radix) || c == '_');
    let based = |(prefix, radix): (&str, u32)| {
        let digits = rest.strip_prefix(prefix);
        digits.is_some_and(|digits| digits.len() > MAX_RADIX_DIGITS && all(digits, radix))
    };
    let octal = rest.starts_with('0') && all(rest, 8);
    let decimal = rest.len() > MAX_DIGITS && rest.split(':').all(|part| all(part, 10));
    octal || decimal || BASES.into_iter().any(based)
}

fn from_radix(digits: &str, radix: u32, negative: bool) -> Option<Value> {
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    if digits.len() > MAX_RADIX_DIGITS {
        return None;
    }
    // Decimal digits, the lowest first.
    let mut decimal: Vec<u32> = vec![0];
    for digit in digits.chars().filter_map(|c| c.to_digit(radix)) {
        let mut carry = digit;
        for place in &mut decimal {
            let value = *place * radix + carry;
            (*place, carry) = (value % 10, value / 10);
        }
        while carry > 0 {
            decimal.push(carry % 10);
            carry /= 10;
        }
    }
    let sign = if negative { "-" } else { "" };
    let decimal = decimal
        .iter()
        .rev()
        .filter_map(|digit| char::from_digit(*digit, 10));
    Value::integer(&format!("{sign}{}", decimal.collect::<String>()))
}
