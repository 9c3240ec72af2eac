//! Timestamps as AGT reads them (with pydantic) and writes them (with Python's `isoformat`).
//!
//! The hash covers the written form, so it has to be the same to the byte. `jiff` checks dates, but
//! parses and prints RFC 9557: pydantic accepts more (numbers, `_` between date and time), keeps the
//! offset as it was given, and Python prints `+00:00` and six digits of fraction, or none.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::value::Value;

/// Numbers beyond this are milliseconds.
const WATERSHED: i128 = 20_000_000_000;

/// The text that is hashed, or nothing if AGT would not take it for a point in time.
pub(crate) fn isoformat(value: &Value) -> Option<String> {
    match value {
        Value::Str(text) => {
            let text = text.as_str()?;
            iso(text).or_else(|| numeric(text))
        }
        Value::Int(digits) => unix(digits.parse().ok()?, |_| 0),
        // The fraction of a negative number counts forwards, as pydantic has it.
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of a unit")]
        Value::Float(number) => unix(whole(*number)?, |unit| {
            (number.fract().abs() * unit as f64).round() as i128
        }),
        _ => None,
    }
}

/// A timestamp of a record.
pub(crate) fn isoformat_of(at: Timestamp) -> String {
    let (seconds, nanoseconds) = (at.as_second(), at.subsec_nanosecond());
    // Rounded down, also before 1970.
    let total = i128::from(seconds) * 1_000_000 + i128::from(nanoseconds.div_euclid(1000));
    utc(total).unwrap_or_else(|| at.to_string())
}

fn iso(text: &str) -> Option<String> {
    let (date, rest) = text.split_at_checked(10)?;
    let bytes = date.as_bytes();
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (
        number(&date[..4])?,
        number(&date[5..7])?,
        number(&date[8..])?,
    );
    if year == 0 {
        return None;
    }
    let small = |number: u32| i8::try_from(number).ok();
    Date::new(i16::try_from(year).ok()?, small(month)?, small(day)?).ok()?;
    if rest.is_empty() {
        return Some(format!("{date}T00:00:00"));
    }
    let time = rest.strip_prefix(['T', 't', ' ', '_'])?;
    let (clock, rest) = clock(time)?;
    Some(format!("{date}T{clock}{}", offset(rest)?))
}

/// Hours, minutes, and what there is of seconds.
fn clock(text: &str) -> Option<(String, &str)> {
    let (hours, rest) = two(text, 24)?;
    let (minutes, rest) = two(rest.strip_prefix(':')?, 60)?;
    let Some(rest) = rest.strip_prefix(':') else {
        return Some((format!("{hours}:{minutes}:00"), rest));
    };
    let (seconds, rest) = two(rest, 60)?;
    let clock = format!("{hours}:{minutes}:{seconds}");
    let Some(rest) = rest.strip_prefix(['.', ',']) else {
        return Some((clock, rest));
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let micro: String = digits.chars().chain("000000".chars()).take(6).collect();
    if micro == "000000" {
        return Some((clock, rest));
    }
    Some((format!("{clock}.{micro}"), rest))
}

fn offset(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    if text.eq_ignore_ascii_case("z") {
        return Some("+00:00".into());
    }
    let mut rest = text.chars();
    let sign = match rest.next()? {
        '+' => '+',
        '-' | '\u{2212}' => '-',
        _ => return None,
    };
    let (hours, rest) = two(rest.as_str(), 24)?;
    let (minutes, rest) = two(rest.strip_prefix(':').unwrap_or(rest), 60)?;
    if !rest.is_empty() {
        return None;
    }
    let sign = if hours == "00" && minutes == "00" {
        '+'
    } else {
        sign
    };
    Some(format!("{sign}{hours}:{minutes}"))
}

/// Two digits below a limit.
fn two(text: &str, limit: u32) -> Option<(&str, &str)> {
    let (digits, rest) = text.split_at_checked(2)?;
    (number(digits)? < limit).then_some((digits, rest))
}

fn number(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// A number in a text.
fn numeric(text: &str) -> Option<String> {
    let plain = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = plain.bytes().filter(u8::is_ascii_digit).count();
    let dots = plain.bytes().filter(|byte| *byte == b'.').count();
    if digits == 0 || dots > 1 || digits + dots != plain.len() || dots == 0 && digits > 18 {
        return None;
    }
    if dots == 0 {
        return unix(text.parse().ok()?, |_| 0);
    }
    let number: f64 = text.parse().ok()?;
    // Rounded to millionths first, also where it is thousandths that count.
    #[expect(clippy::cast_possible_truncation, reason = "at most a million")]
    let millionths = ((number - number.floor()) * 1e6).round() as i128;
    unix(whole(number)?, |unit| {
        let step = 1_000_000 / unit;
        (millionths + step / 2) / step
    })
}

#[expect(clippy::cast_possible_truncation, reason = "checked")]
fn whole(number: f64) -> Option<i128> {
    (number.abs() < 1e18).then_some(number.floor() as i128)
}

/// A whole number of seconds or milliseconds, and a fraction, which is asked for the microseconds
/// it makes of a unit that has so many.
fn unix(number: i128, fraction: impl FnOnce(i128) -> i128) -> Option<String> {
    let unit = if number.abs() > WATERSHED {
        1000
    } else {
        1_000_000
    };
    utc(number.checked_mul(unit)? + fraction(unit))
}

/// Microseconds since 1970.
fn utc(total: i128) -> Option<String> {
    let at = Timestamp::from_microsecond(i64::try_from(total).ok()?).ok()?;
    let time = TimeZone::UTC.to_datetime(at);
    if time.year() < 1 {
        return None;
    }
    let micro = time.subsec_nanosecond() / 1000;
    let fraction = match micro {
        0 => String::new(),
        _ => format!(".{micro:06}"),
    };
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}+00:00",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right side is the output of pydantic 2.13 on Python 3.11.
    #[test]
    fn points_in_time_are_read_as_pydantic_reads_them() {
        for (text, expected) in [
            ("2026-05-12T00:00:00Z", "2026-05-12T00:00:00+00:00"),
            ("2026-05-12T00:00:00z", "2026-05-12T00:00:00+00:00"),
            ("2026-05-12 00:00:00", "2026-05-12T00:00:00"),
            ("2026-05-12_00:00:00", "2026-05-12T00:00:00"),
            ("2026-05-12t00:00:00+0530", "2026-05-12T00:00:00+05:30"),
            ("2026-05-12T00:00", "2026-05-12T00:00:00"),
            ("2026-05-12T00:00+02:00", "2026-05-12T00:00:00+02:00"),
            ("2026-05-12", "2026-05-12T00:00:00"),
            ("2026-05-12T00:00:00.1", "2026-05-12T00:00:00.100000"),
            (
                "2026-05-12T00:00:00.123456999+00:00",
                "2026-05-12T00:00:00.123456+00:00",
            ),
            ("2026-05-12T00:00:00,5Z", "2026-05-12T00:00:00.500000+00:00"),
            ("2026-05-12T00:00:00-00:00", "2026-05-12T00:00:00+00:00"),
            (
                "2026-05-12T00:00:00\u{2212}05:00",
                "2026-05-12T00:00:00-05:00",
            ),
            (
                "2026-05-12T00:00:00.000000999Z",
                "2026-05-12T00:00:00+00:00",
            ),
            ("2026-05-12T00:00:00+23:59", "2026-05-12T00:00:00+23:59"),
            ("2024-02-29T00:00:00", "2024-02-29T00:00:00"),
            ("0001-01-01T00:00:00", "0001-01-01T00:00:00"),
            (
                "9999-12-31T23:59:59.999999+00:00",
                "9999-12-31T23:59:59.999999+00:00",
            ),
            ("1747008000", "2025-05-12T00:00:00+00:00"),
            ("1747008000000", "2025-05-12T00:00:00+00:00"),
            ("1747008000.5", "2025-05-12T00:00:00.500000+00:00"),
            ("-1", "1969-12-31T23:59:59+00:00"),
            ("+5", "1970-01-01T00:00:05+00:00"),
            (".5", "1970-01-01T00:00:00.500000+00:00"),
            ("20000000000", "2603-10-11T11:33:20+00:00"),
            ("20000000001", "1970-08-20T11:33:20.001000+00:00"),
            ("0.9999999", "1970-01-01T00:00:01+00:00"),
            ("-1.25", "1969-12-31T23:59:58.750000+00:00"),
            ("-62135596800000", "0001-01-01T00:00:00+00:00"),
            ("20000000001.0005", "1970-08-20T11:33:20.001001+00:00"),
            ("20000000001.9996", "1970-08-20T11:33:20.002000+00:00"),
            ("-20000000001.2506", "1969-05-14T12:26:39.998749+00:00"),
        ] {
            let found = isoformat(&Value::str(text));
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        for (number, expected) in [
            (Value::int(0), "1970-01-01T00:00:00+00:00"),
            (
                Value::int(1_747_008_000_123_i64),
                "2025-05-12T00:00:00.123000+00:00",
            ),
            (Value::Float(-1.5), "1969-12-31T23:59:58.500000+00:00"),
            (Value::Float(0.1234565), "1970-01-01T00:00:00.123457+00:00"),
            (
                Value::Float(1747008000.1234567),
                "2025-05-12T00:00:00.123457+00:00",
            ),
            (Value::Float(-0.0), "1970-01-01T00:00:00+00:00"),
            (Value::Float(-1.25), "1969-12-31T23:59:58.250000+00:00"),
            (
                Value::Float(-3592490421292.5),
                "1856-02-28T05:59:38.707500+00:00",
            ),
            (
                Value::Float(51310569977.76379),
                "1971-08-17T20:56:09.977764+00:00",
            ),
            (
                Value::Float(20000000001.0005),
                "1970-08-20T11:33:20.001000+00:00",
            ),
            (
                Value::Float(-20000000001.2506),
                "1969-05-14T12:26:39.998251+00:00",
            ),
            (
                Value::int(-3_592_490_421_292_i64),
                "1856-02-28T05:59:38.708000+00:00",
            ),
            (
                Value::int(8_675_913_724_213_i64),
                "2244-12-05T16:02:04.213000+00:00",
            ),
        ] {
            assert_eq!(isoformat(&number).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_pydantic_refuses_is_refused() {
        for text in [
            "",
            " ",
            "2026-05-12T00",
            "2026-05-12T00:00:00+05",
            "2026-05-12T23:59:60Z",
            "2026-05-12T24:00:00",
            "0000-01-01T00:00:00",
            " 2026-05-12T00:00:00Z",
            "2026-05-12T00:00:00+24:00",
            "2026-05-12T00:00:00 Z",
            "2026-5-12T00:00:00",
            "2026-02-29T00:00:00",
            "2026-05-12T00:00:00.",
            "2026-05-12Z",
            "infinity",
            "nan",
            "1e9",
            "2026-05-12T00:00:00+00:00:30",
            "2026-05-12T00:00:00+5:30",
            "1_000",
            "0x10",
            "253402300800000",
            "-62135596800001",
            "99999999999999999999",
            "2026-05-1\u{662}",
        ] {
            assert_eq!(isoformat(&Value::str(text)), None, "{text}");
        }
        for value in [
            Value::Null,
            Value::Bool(true),
            Value::List(Vec::new()),
            Value::Float(f64::NAN),
            Value::Float(f64::INFINITY),
            Value::Int("1180591620717411303424".into()),
        ] {
            assert_eq!(isoformat(&value), None, "{value:?}");
        }
    }

    #[test]
    fn our_own_points_in_time_have_microseconds_only_where_there_are_some() {
        let at = |text: &str| isoformat_of(text.parse().expect("time"));
        assert_eq!(at("2026-05-12T00:00:00Z"), "2026-05-12T00:00:00+00:00");
        assert_eq!(
            at("2026-05-12T00:00:00.123456789Z"),
            "2026-05-12T00:00:00.123456+00:00"
        );
    }
}
