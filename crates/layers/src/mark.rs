//! How a copy says what it is a copy of: by its time of access, which nothing else here uses.

use std::time::{Duration, SystemTime};

use rustix::fs::{Timespec, Timestamps};

use super::walk::{Meta, Time};

/// A change within this time before the copy may hide another one in the same tick of the clock.
const TICK: Duration = Duration::from_millis(50);

/// What marks a copy as up to date: the time of the last change there, which no program can set.
/// Two sessions may share a copy; the number of the device tells their marks apart.
pub(super) fn mark(found: &Meta) -> Time {
    let (seconds, nanos) = found.changed;
    (seconds, (nanos + found.device.1) % 1_000_000_000)
}

/// The mark, or nothing if the clock may have stood still since the change.
pub(super) fn settled(found: &Meta) -> Option<Time> {
    let (seconds, nanos) = found.changed;
    let since = u64::try_from(seconds).ok()?;
    let changed_at = SystemTime::UNIX_EPOCH + Duration::new(since, nanos);
    let age = SystemTime::now().duration_since(changed_at).ok()?;
    (age > TICK).then(|| mark(found))
}

pub(super) fn times(accessed: Option<Time>, modified: Time) -> Timestamps {
    let spec = |(seconds, nanos): Time| Timespec {
        tv_sec: seconds,
        tv_nsec: nanos.into(),
    };
    Timestamps {
        last_access: accessed.map_or(spec((0, 0)), spec),
        last_modification: spec(modified),
    }
}
