//! Numbers of any size, compared exactly: an integer is never rounded to meet a float.

use std::cmp::Ordering;

use super::Value;

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Longer integers are not read: Python refuses them too.
pub const MAX_DIGITS: usize = 4300;

/// An integer that does not fit into 64 bits: a sign, and digits without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BigInt {
    negative: bool,
    digits: String,
}

impl BigInt {
    /// Whether it is less than zero. It is never zero.
    pub fn is_negative(&self) -> bool {
        self.negative
    }
}

impl Ord for BigInt {
    fn cmp(&self, other: &Self) -> Ordering {
        let magnitude = |a: &BigInt, b: &BigInt| {
            (a.digits.len().cmp(&b.digits.len())).then_with(|| a.digits.cmp(&b.digits))
        };
        match (self.negative, other.negative) {
            (false, false) => magnitude(self, other),
            (true, true) => magnitude(other, self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for BigInt {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for BigInt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}", self.digits)
    }
}

impl Value {
    /// An integer of up to [`MAX_DIGITS`], from an optional sign and decimal digits.
    pub fn integer(text: &str) -> Option<Value> {
        if let Ok(small) = text.parse::<i64>() {
            return Some(Value::Int(small));
        }
        let negative = text.starts_with('-');
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        if digits.len() > MAX_DIGITS {
            return None;
        }
        let digits = digits.trim_start_matches('0').to_owned();
        let exact = if negative {
            format!("-{digits}")
        } else {
            digits.clone()
        };
        if let Ok(small) = exact.parse::<i64>() {
            return Some(Value::Int(small));
        }
        Some(Value::Big(BigInt { negative, digits }))
    }
}

/// A number, with booleans among them: `True` is 1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number<'a> {
    Int(i64),
    Big(&'a BigInt),
    Float(f64),
}

impl<'a> Number<'a> {
    pub(super) fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Number::Int(i64::from(*value))),
            Value::Int(value) => Some(Number::Int(*value)),
            Value::Big(value) => Some(Number::Big(value)),
            Value::Float(value) => Some(Number::Float(*value)),
            _ => None,
        }
    }

    /// Nothing if one of them is not a number (NaN).
    pub(super) fn compare(self, other: Number<'_>) -> Option<Ordering> {
        use Number::{Big, Float, Int};
        match (self, other) {
            (Int(a), Int(b)) => Some(a.cmp(&b)),
            (Float(a), Float(b)) => a.partial_cmp(&b),
            (Big(a), Big(b)) => Some(a.cmp(b)),
            (Int(_), Big(b)) => Some(if b.negative {
                Ordering::Greater
            } else {
                Ordering::Less
            }),
            (Int(a), Float(b)) => int_and_float(a, b),
            (Big(a), Float(b)) => big_and_float(a, b),
            (Big(_), Int(_)) | (Float(_), Int(_) | Big(_)) => {
                other.compare(self).map(Ordering::reverse)
            }
        }
    }
}

fn int_and_float(a: i64, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    if b >= TWO_TO_63 {
        return Some(Ordering::Less);
    }
    if b < -TWO_TO_63 {
        return Some(Ordering::Greater);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    let whole = b.trunc() as i64;
    Some(a.cmp(&whole).then_with(|| {
        // Equal so far: what is left of the float decides.
        0.0_f64.partial_cmp(&b.fract()).unwrap_or(Ordering::Equal)
    }))
}

fn big_and_float(a: &BigInt, b: f64) -> Option<Ordering> {
    let side = if a.negative {
        Ordering::Less
    } else {
        Ordering::Greater
    };
    if b.is_nan() {
        return None;
    }
    if b.is_infinite() {
        return Some(if b > 0.0 {
            Ordering::Less
        } else {
            Ordering::Greater
        });
    }
    if b.abs() < TWO_TO_63 {
        return Some(side);
    }
    // A float of this size is a whole number, and is printed with all its digits.
    let b = BigInt {
        negative: b < 0.0,
        digits: format!("{:.0}", b.abs()),
    };
    Some(a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &Value, b: &Value) -> Option<Ordering> {
        Number::of(a)?.compare(Number::of(b)?)
    }

    fn int(text: &str) -> Value {
        Value::integer(text).expect("an integer")
    }

    #[test]
    fn integers_of_any_size_are_read() {
        assert_eq!(int("-9223372036854775808"), Value::Int(i64::MIN));
        assert_eq!(int("+7"), Value::Int(7));
        assert_eq!(int("00000000000000000000000012"), Value::Int(12));
        assert!(matches!(int("9223372036854775808"), Value::Big(_)));
        for bad in ["", "-", "+", "1.0", "1_000", "x"] {
            assert_eq!(Value::integer(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_integer_is_rounded_to_meet_a_float() {
        // 2^53 + 1 has no float of its own.
        let odd = Value::Int(9_007_199_254_740_993);
        let even = Value::Float(9_007_199_254_740_992.0);
        assert_eq!(compare(&odd, &even), Some(Ordering::Greater));
        assert_eq!(compare(&even, &odd), Some(Ordering::Less));
        assert_eq!(
            compare(&Value::Int(1), &Value::Float(1.0)),
            Some(Ordering::Equal)
        );
        assert_eq!(
            compare(&Value::Int(-1), &Value::Float(-1.5)),
            Some(Ordering::Greater)
        );
        assert_eq!(
            compare(&Value::Bool(true), &Value::Float(1.0)),
            Some(Ordering::Equal)
        );
    }

    #[test]
    fn big_integers_have_their_place() {
        let big = int("100000000000000000000");
        assert_eq!(compare(&big, &Value::Float(1e20)), Some(Ordering::Equal));
        assert_eq!(compare(&big, &Value::Float(1e19)), Some(Ordering::Greater));
        assert_eq!(
            compare(&big, &Value::Float(f64::INFINITY)),
            Some(Ordering::Less)
        );
        assert_eq!(
            compare(&big, &Value::Int(i64::MAX)),
            Some(Ordering::Greater)
        );
        assert_eq!(
            compare(&int("-100000000000000000000"), &big),
            Some(Ordering::Less)
        );
        assert_eq!(compare(&big, &Value::Float(f64::NAN)), None);
    }
}
