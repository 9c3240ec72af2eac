//! How a file that looks as it did when it was sent is known to hold the same.

use brig_linux::access::{AccessTimes, Time, now};
use rustix::fs::Stat;

use crate::stamps::{SentFile, Stamp, accessed};

/// Which files with unchanged stamps are read, because they may have been written to through a mapping. Such a
/// write need not change any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// None: nobody can have mapped one.
    #[default]
    Nothing,
    /// Those that were accessed, as far as these times tell. No process may have had a file mapped when
    /// the files were sent, and none may have opened one with `O_NOATIME` since.
    Accessed(AccessTimes),
    Everything,
}

/// What decides.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    pub compare: Compare,
    /// From when on somebody else may have written to the files, or accessed them, by [`now`]: what happens
    /// within one tick of the kernel's clock has the same time.
    pub written_from: Time,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            compare: Compare::Nothing,
            written_from: now(),
        }
    }
}

impl Evidence {
    /// Whether a file must hold what was sent of it.
    pub(crate) fn is_unchanged(&self, before: &SentFile, found: &Stat) -> bool {
        let stamp = Stamp::of(found);
        let (changed, accessed) = (stamp.changed(), accessed(found));
        let settled = |time| time < self.written_from;
        let is_accessed = |times: AccessTimes| {
            before.accessed != accessed || !settled(accessed) || !times.show_next(accessed, changed)
        };
        let may_be_written = match self.compare {
            Compare::Nothing => false,
            Compare::Accessed(times) => is_accessed(times),
            Compare::Everything => true,
        };
        before.stamp == stamp && settled(changed) && !may_be_written
    }
}
