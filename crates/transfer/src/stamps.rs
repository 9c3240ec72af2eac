//! What files looked like when they were sent, to send only changes the next time.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::file_reader::Digest;
use crate::record::{self, Time};

/// Two changes within one tick of the kernel's clock have the same time stamp.
const TICK: Duration = Duration::from_millis(50);

/// The sent files, by path.
#[derive(Debug, Default)]
pub struct Stamps(pub(crate) HashMap<Vec<u8>, SentFile>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct SentFile {
    pub stamp: Stamp,
    /// When it was last accessed.
    pub accessed: Time,
    pub content: Digest,
}

/// Identifies one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    changed: Time,
}

impl Stamp {
    pub(crate) fn of(found: &Stat) -> Self {
        Self {
            device: found.st_dev,
            inode: found.st_ino,
            size: found.st_size,
            changed: record::time(found.st_ctime, found.st_ctime_nsec),
        }
    }

    /// When it was last changed.
    pub(crate) fn changed(&self) -> Time {
        self.changed
    }

    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }
}

/// Whether a change from now on must have another time stamp than this one, on any file system.
pub(crate) fn settled((seconds, nanos): Time) -> bool {
    let Ok(seconds) = u64::try_from(seconds) else {
        return false;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
    let age = SystemTime::now().duration_since(changed);
    age.is_ok_and(|age| age > TICK)
}

pub(crate) fn accessed(found: &Stat) -> Time {
    record::time(found.st_atime, found.st_atime_nsec)
}
