//! Sizes, times and numbers of processors, as they are written in flags and in the configuration.

use std::time::Duration;

const SIZES: [(&str, f64); 4] = [
    ("K", 1024.0),
    ("M", 1_048_576.0),
    ("G", 1_073_741_824.0),
    ("T", 1_099_511_627_776.0),
];

const TIMES: [(&str, f64); 5] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("", 1.0),
];

/// `512M`, `1.5G`, `64KiB`. A plain number is refused because its unit is ambiguous.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(format!("needs a unit, such as `{text}M` or `{text}K`"));
    }
    let upper = unit.to_ascii_uppercase();
    let (_, factor) = SIZES
        .into_iter()
        .find(|(name, _)| {
            ["", "B", "IB"]
                .iter()
                .any(|end| upper == format!("{name}{end}"))
        })
        .or((upper == "B").then_some(("", 1.0)))
        .ok_or_else(|| format!("unknown unit `{unit}`: use B, K, M, G or T (powers of 1024)"))?;
    whole(number * factor)
}

/// `500ms`, `10s`, `2m`, `1h`, or plain seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let (_, factor) = TIMES
        .into_iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("unknown unit `{unit}`: use ms, s, m or h"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| "too long".into())
}

/// A positive number.
pub fn cpus(text: &str) -> Result<f64, String> {
    match split(text)? {
        (number, "") if number > 0.0 => Ok(number),
        (_, "") => Err("must be more than 0".into()),
        (_, unit) => Err(format!("takes no unit, but `{unit}` was given")),
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: f64 = digits
        .parse()
        .map_err(|_| "must start with a number".to_owned())?;
    Ok((number, unit))
}

fn whole(bytes: f64) -> Result<u64, String> {
    // Above 2^53 a float no longer counts single bytes, and no limit is that large.
    if bytes > 9_007_199_254_740_992.0 {
        return Err("too large".into());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 2^53"
    )]
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_need_a_unit() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("64KiB"), Ok(64 << 10));
        assert_eq!(size("1gb"), Ok(1 << 30));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!(size("100B"), Ok(100));
        for wrong in [
            "512",
            "",
            "M",
            "-1M",
            "1X",
            "1e9M",
            "1.2.3M",
            "99999999T",
            "1MM",
            "1iB",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_take_units_or_seconds() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "s", "-1", "1d", "1 s", "nan", "inf", "1e3"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cpus_are_positive_numbers() {
        assert_eq!(cpus("0.5"), Ok(0.5));
        assert!(cpus("0").is_err());
        assert!(cpus("2x").is_err());
    }
}
