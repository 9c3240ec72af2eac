//! Sizes and times as people write them, and as the flags read them.

use std::fmt::Display;

const UNITS: [(&str, u64); 3] = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

pub(crate) fn size(bytes: u64) -> String {
    let Some((name, unit)) = UNITS.into_iter().find(|(_, unit)| bytes >= *unit) else {
        return format!("{bytes}B");
    };
    let tenths = (u128::from(bytes) * 10 + u128::from(unit) / 2) / u128::from(unit);
    match tenths % 10 {
        0 => format!("{}{name}", tenths / 10),
        part => format!("{}.{part}{name}", tenths / 10),
    }
}

/// `1 record`, `2 records`.
pub(crate) fn count<N: Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {what}{plural}")
}

pub(crate) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        ms if ms >= 60_000 && ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms if ms < 1000 => format!("{ms}ms"),
        ms => format!("{}.{:03}s", ms / 1000, ms % 1000)
            .replace("00s", "s")
            .replace("0s", "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_flags() {
        assert_eq!(size(512 << 20), "512M");
        assert_eq!(size(3 << 29), "1.5G");
        assert_eq!(size(1 << 10), "1K");
        assert_eq!(size(0), "0B");
    }

    #[test]
    fn a_count_agrees_with_its_noun() {
        assert_eq!(count(0_u64, "record"), "0 records");
        assert_eq!(count(1_u64, "record"), "1 record");
        assert_eq!(count(2_usize, "record"), "2 records");
    }

    #[test]
    fn durations_read_back_as_flags() {
        assert_eq!(duration(500), "500ms");
        assert_eq!(duration(1500), "1.5s");
        assert_eq!(duration(1050), "1.05s");
        assert_eq!(duration(10_000), "10s");
        assert_eq!(duration(60_000), "1m");
        assert_eq!(duration(90_000), "90s");
    }
}
