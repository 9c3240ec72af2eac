//! What the stream is made of: records with their length in front.

use serde::{Deserialize, Serialize};

/// Longer than any record of ours: a path, the target of a link, a few numbers.
pub const MAX_RECORD: usize = 64 * 1024;

/// Seconds and nanoseconds.
pub type Time = (i64, u32);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
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
    /// Bytes of the file that came last, which follow the record. What is not sent is a hole.
    Data {
        at: u64,
        length: u32,
    },
    Link {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    /// One more name of a file that was sent before.
    Name {
        path: Vec<u8>,
        first: Vec<u8>,
    },
    /// There is nothing else. The mode and time of the folder itself.
    End {
        mode: u32,
        modified: Time,
    },
}

impl Record {
    pub fn encode_into(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let bytes = postcard::to_stdvec(self).map_err(std::io::Error::other)?;
        let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&bytes);
        Ok(())
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((record, [])) => Some(record),
            _ => None,
        }
    }
}
