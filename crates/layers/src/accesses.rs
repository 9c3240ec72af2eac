//! When files were last accessed, to tell which ones may have been mapped since they were saved.

use std::collections::HashMap;

use brig_linux::access::AccessTimes;

use super::walk::{Meta, Time};

/// The times of the last access to the files that were saved, by inode, and what they tell.
#[derive(Debug, Default)]
pub struct Accesses {
    times: AccessTimes,
    before: HashMap<u64, Time>,
    now: HashMap<u64, Time>,
    /// How many bytes the last call copied.
    pub(super) copied: u64,
}

impl Accesses {
    /// With what the times in this file system tell.
    pub fn new(times: AccessTimes) -> Self {
        Self {
            times,
            ..Self::default()
        }
    }

    pub(super) fn found(&mut self, file: &Meta) {
        self.now.insert(file.inode, file.accessed);
    }

    /// Whether nobody can have accessed a file after it was saved. `since`: from when on somebody could.
    pub(super) fn unaccessed(&self, file: &Meta, since: Time) -> bool {
        self.before.get(&file.inode) == Some(&file.accessed)
            && file.accessed < since
            && self.times.show_next(file.accessed, file.changed)
    }

    /// Everything was saved, and the next call compares with that.
    pub(super) fn complete(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// Something is about to be saved.
    pub(super) fn begin(&mut self) {
        self.now.clear();
    }
}
