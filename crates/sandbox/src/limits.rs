//! The range of every limit, and how two sets of limits become one.

use std::fmt::Debug;
use std::time::Duration;

use crate::config::{Limit, Limits, MIB, OutputOverflow};
use crate::{Error, Result};

const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// What a limit may be.
#[derive(Clone, Copy, Debug)]
pub struct Range<T> {
    what: &'static str,
    min: T,
    max: T,
    text: &'static str,
}

/// Of the time limit.
pub const TIMEOUT: Range<Duration> = Range {
    what: "timeout",
    min: Duration::from_millis(10),
    max: Duration::from_secs(24 * 60 * 60),
    text: "10 ms to 24 h",
};
/// Of the memory limit, in bytes.
pub const MEMORY: Range<u64> = Range {
    what: "memory limit",
    min: 16 * MIB,
    max: TIB,
    text: "16 MiB to 1 TiB",
};
/// Of the CPU limit.
pub const CPUS: Range<f64> = Range {
    what: "cpu limit",
    min: 0.01,
    max: 1024.0,
    text: "0.01 to 1024 CPUs",
};
/// Of the limit of processes.
pub const PROCESSES: Range<u32> = Range {
    what: "process limit",
    min: 1,
    max: 65536,
    text: "1 to 65536",
};
/// Of the disk limit, in bytes.
pub const DISK: Range<u64> = Range {
    what: "disk limit",
    min: MIB,
    max: TIB,
    text: "1 MiB to 1 TiB",
};
/// Of the output limit, in bytes.
pub const OUTPUT: Range<u64> = Range {
    what: "output limit",
    min: 1,
    max: GIB,
    text: "1 byte to 1 GiB per stream",
};

impl<T: PartialOrd + Copy + Debug> Range<T> {
    /// Gives the value back if it is in range. What can't be compared (NaN) is not.
    pub fn check(&self, value: T) -> Result<T> {
        if value >= self.min && value <= self.max {
            return Ok(value);
        }
        Err(Error::InvalidConfig {
            what: self.what,
            problem: format!("`{value:?}` is out of range, must be {}", self.text),
        })
    }
}

impl Limits {
    /// Refuses limits that are out of range.
    pub fn check(&self) -> Result<()> {
        TIMEOUT.check(self.timeout.value)?;
        MEMORY.check(self.memory_bytes.value)?;
        CPUS.check(self.cpus.value)?;
        PROCESSES.check(self.processes.value)?;
        DISK.check(self.disk_bytes.value)?;
        OUTPUT.check(self.output_bytes.value)?;
        Ok(())
    }

    /// The stricter of the two wins, limit by limit. What either of them asked for stays asked
    /// for: a weaker means would hold neither.
    pub fn stricter(&self, other: &Limits) -> Limits {
        Limits {
            timeout: tighter(self.timeout, other.timeout),
            memory_bytes: tighter(self.memory_bytes, other.memory_bytes),
            cpus: tighter(self.cpus, other.cpus),
            processes: tighter(self.processes, other.processes),
            disk_bytes: tighter(self.disk_bytes, other.disk_bytes),
            output_bytes: tighter(self.output_bytes, other.output_bytes),
            output_overflow: match (self.output_overflow, other.output_overflow) {
                (OutputOverflow::Truncate, OutputOverflow::Truncate) => OutputOverflow::Truncate,
                _ => OutputOverflow::Kill,
            },
        }
    }
}

fn tighter<T: PartialOrd + Copy>(a: Limit<T>, b: Limit<T>) -> Limit<T> {
    let value = if b.value < a.value { b.value } else { a.value };
    if a.must_be_enforced() || b.must_be_enforced() {
        Limit::asked(value)
    } else if a.asked || b.asked {
        Limit::best_effort(value)
    } else {
        Limit::default_of(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_range_belong_to_it() {
        assert!(MEMORY.check(16 * MIB).is_ok());
        assert!(MEMORY.check(TIB).is_ok());
        assert!(MEMORY.check(16 * MIB - 1).is_err());
        assert!(MEMORY.check(TIB + 1).is_err());
        assert!(TIMEOUT.check(Duration::from_millis(9)).is_err());
        assert!(PROCESSES.check(0).is_err());
        assert!(OUTPUT.check(0).is_err());
        assert!(DISK.check(0).is_err());
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        for value in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert!(CPUS.check(value).is_err(), "{value}");
        }
        assert!(CPUS.check(0.5).is_ok());
    }

    #[test]
    fn the_error_names_the_value_and_the_range() {
        let text = TIMEOUT
            .check(Duration::ZERO)
            .expect_err("out of range")
            .to_string();
        assert_eq!(
            text,
            "invalid timeout: `0ns` is out of range, must be 10 ms to 24 h"
        );
    }

    #[test]
    fn the_stricter_wins_and_stays_asked_for() {
        let config = Limits {
            cpus: Limit::asked(4.0),
            ..Limits::default()
        };
        let policy = Limits {
            cpus: Limit::asked(2.0),
            memory_bytes: Limit::asked(4 * GIB),
            output_overflow: OutputOverflow::Kill,
            ..Limits::default()
        };
        let best_effort = Limits {
            memory_bytes: Limit::best_effort(64 * MIB),
            ..Limits::default()
        };
        let memory = |other: &Limits| best_effort.stricter(other).memory_bytes;
        assert_eq!(memory(&Limits::default()), Limit::best_effort(64 * MIB));
        assert_eq!(memory(&policy), Limit::asked(64 * MIB));
        let both = config.stricter(&policy);
        assert_eq!(both, policy.stricter(&config));
        assert_eq!(both.cpus, Limit::asked(2.0));
        assert_eq!(both.memory_bytes, Limit::asked(512 * MIB));
        assert_eq!(both.processes, Limit::default_of(256));
        assert_eq!(both.output_overflow, OutputOverflow::Kill);
    }
}
