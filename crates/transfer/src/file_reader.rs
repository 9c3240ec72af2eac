//! Reads the content of one file, a piece at a time, without its holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::record::Record;

const PIECE: usize = 32 * 1024;

/// Digest of the data of a file and its offsets.
pub(crate) type Digest = [u8; 32];

#[derive(Debug)]
pub(crate) struct FileReader {
    file: File,
    at: u64,
    /// The end of the current extent.
    until: u64,
    size: u64,
    hash: Sha256,
}

/// Before each piece of data, so that equal digests mean equal content.
pub(crate) fn hash_position(hash: &mut Sha256, at: u64, length: u32) {
    hash.update(at.to_le_bytes());
    hash.update(length.to_le_bytes());
}

impl FileReader {
    pub(crate) fn new(file: File, size: u64) -> Self {
        Self {
            file,
            at: 0,
            until: 0,
            size,
            hash: Sha256::new(),
        }
    }

    pub(crate) fn restart(&mut self) {
        (self.at, self.until) = (0, 0);
        self.hash = Sha256::new();
    }

    /// The digest of what was read since the start.
    pub(crate) fn digest(&self) -> Digest {
        self.hash.clone().finalize().into()
    }

    /// Reads the next piece, and encodes it if `out` is given. Returns whether there may be more.
    pub(crate) fn piece(&mut self, out: Option<&mut Vec<u8>>) -> io::Result<bool> {
        if self.at >= self.until {
            match self.next_data()? {
                Some((start, stop)) => (self.at, self.until) = (start, stop),
                None => return Ok(false),
            }
        }
        let mut buffer = [0; PIECE];
        let want = usize::try_from(self.until - self.at).unwrap_or(PIECE);
        let count = self.file.read_at(&mut buffer[..want.min(PIECE)], self.at)?;
        if count == 0 {
            return Ok(false);
        }
        let (at, length) = (self.at, u32::try_from(count).unwrap_or(u32::MAX));
        // Not every file system reports its holes, so zeros are treated as one.
        if buffer[..count].iter().any(|byte| *byte != 0) {
            hash_position(&mut self.hash, at, length);
            self.hash.update(&buffer[..count]);
            if let Some(out) = out {
                Record::Data { at, length }.encode_into(out)?;
                out.extend_from_slice(&buffer[..count]);
            }
        }
        self.at += count as u64;
        Ok(true)
    }

    fn next_data(&self) -> io::Result<Option<(u64, u64)>> {
        if self.at >= self.size {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(start) => {
                let stop = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
                Ok((start < self.size).then_some((start, stop.min(self.size))))
            }
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((self.at, self.size))),
            Err(error) => Err(error.into()),
        }
    }
}
