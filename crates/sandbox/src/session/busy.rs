//! Shows other processes that something runs in a session.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

/// A lock that nobody waits for: it is only looked at.
#[derive(Debug, Default)]
pub(crate) struct BusyFlag {
    file: Option<File>,
    raised: bool,
}

impl BusyFlag {
    pub(crate) fn attach(&mut self, file: File) {
        self.file = Some(file);
        self.show();
    }

    pub(crate) fn detach(&mut self) {
        self.file = None;
    }

    pub(crate) fn raise(&mut self, raised: bool) {
        if self.raised != raised {
            self.raised = raised;
            self.show();
        }
    }

    fn show(&self) {
        let Some(file) = &self.file else { return };
        let operation = match self.raised {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::Unlock,
        };
        // Somebody may be looking at this very moment; they look for an instant only.
        for _ in 0..100 {
            if flock(file, operation).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}
