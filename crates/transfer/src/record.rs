//! The records of the stream. Each is preceded by its length.

use serde::{Deserialize, Serialize};

use crate::cache::CachedFile;

/// Longer than any valid record: a path, the target of a link, a few numbers.
pub(crate) const MAX_RECORD: usize = 64 * 1024;

/// Seconds and nanoseconds.
pub(crate) type Time = (i64, u32);

/// The kernel's nanoseconds are below a billion.
pub(crate) fn time(seconds: i64, nanoseconds: u64) -> Time {
    (seconds, u32::try_from(nanoseconds).unwrap_or(0))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Before everything in it.
    Folder {
        path: Vec<u8>,
        mode: u32,
        modified: Time,
    },
    /// Followed by its data, unless it is the same as the last time.
    File {
        path: Vec<u8>,
        mode: u32,
        modified: Time,
        size: u64,
        same: bool,
    },
    /// A file that the receiver has in its cache.
    Cached {
        path: Vec<u8>,
        mode: u32,
        modified: Time,
        size: u64,
        file: CachedFile,
    },
    /// Bytes of the current file, which follow the record. What is not sent is a hole.
    Data {
        at: u64,
        length: u32,
    },
    Link {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    /// A hard link to a file that was sent before.
    Name {
        path: Vec<u8>,
        first: Vec<u8>,
    },
    /// The end of the stream. Mode and time of the directory itself.
    End {
        mode: u32,
        modified: Time,
    },
}

impl Record {
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let bytes = postcard::to_stdvec(self).map_err(std::io::Error::other)?;
        let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&bytes);
        Ok(())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((record, [])) => Some(record),
            _ => None,
        }
    }
}
