//! What goes wrong, and at which calls.

use nix::errno::Errno;

use super::calls::{Call, Does};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SIGKILL before a call that changes something.
    Killed,
    /// No space is left from then on.
    Full,
    /// The file system can't be written any more from then on.
    ReadOnly,
    /// No descriptor is left from then on.
    NoDescriptors,
    /// The medium fails once.
    Broken,
    /// One file can't be reached.
    Forbidden,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Killed,
        Self::Full,
        Self::ReadOnly,
        Self::NoDescriptors,
        Self::Broken,
        Self::Forbidden,
    ];

    pub(super) fn errno(self) -> Option<Errno> {
        match self {
            Self::Killed => None,
            Self::Full => Some(Errno::ENOSPC),
            Self::ReadOnly => Some(Errno::EROFS),
            Self::NoDescriptors => Some(Errno::EMFILE),
            Self::Broken => Some(Errno::EIO),
            Self::Forbidden => Some(Errno::EACCES),
        }
    }

    /// Nothing works after it either.
    pub(super) fn lasts(self) -> bool {
        matches!(
            self,
            Self::Killed | Self::Full | Self::ReadOnly | Self::NoDescriptors
        )
    }

    pub(super) fn concerns(self, call: &Call) -> bool {
        use Does::{Change, Flush, Look, Name, Open, OpenToWrite, Write};
        match self {
            Self::Killed => matches!(call.does, OpenToWrite | Name | Change | Write | Flush),
            Self::Full => matches!(call.does, OpenToWrite | Name | Write | Flush),
            Self::ReadOnly => matches!(call.does, OpenToWrite | Name | Change | Write | Flush),
            Self::NoDescriptors => matches!(call.does, Open | OpenToWrite),
            Self::Broken => true,
            Self::Forbidden => matches!(call.does, Open | OpenToWrite | Name | Change | Look),
        }
    }
}

/// At the call with this number, counted from 0, of those that the kind concerns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub kind: Kind,
    pub at: usize,
}

impl Fault {
    pub(super) fn is_at(self, number: usize) -> bool {
        number == self.at || number > self.at && self.kind.lasts()
    }
}
