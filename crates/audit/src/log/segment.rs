use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{LogDirectory, new_file};
use super::error::{LogError, Result};
use super::lines::LONGEST;
use crate::line::Line;

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Segment {
    pub file: Arc<File>,
    pub path: PathBuf,
    pub start: u64,
    /// The end of what was read or written.
    pub offset: u64,
    inode: (u64, u64),
}

impl Segment {
    pub(super) fn open(directory: &LogDirectory, start: u64) -> Result<Self> {
        let path = directory.segment(start);
        let wrong = || LogError::io("open", &path);
        let file = new_file()
            .write(false)
            .append(true)
            .open(&path)
            .map_err(wrong())?;
        let metadata = file.metadata().map_err(wrong())?;
        Ok(Self {
            file: Arc::new(file),
            inode: (metadata.dev(), metadata.ino()),
            path,
            start,
            offset: 0,
        })
    }

    /// Its length, if it is still where it was.
    pub(super) fn length(&self) -> Result<u64> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.inode => Ok(found.len()),
            Ok(_) => Err(LogError::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LogError::Replaced),
            Err(error) => Err(LogError::io("find", &self.path)(error)),
        }
    }

    pub(super) fn cut(&self, length: u64) -> Result<()> {
        self.file
            .set_len(length)
            .map_err(LogError::io("cut", &self.path))
    }
}

/// Where the line of a record begins in the file of its segment.
pub(crate) fn find(file: &File, path: &Path, seq: u64) -> Result<Option<u64>> {
    let wrong = || LogError::io("read", path);
    let length = file.metadata().map_err(wrong())?.len();
    // The line, if there is one, begins in `low..high`.
    let (mut low, mut high) = (0, length);
    while high - low > 4096 {
        let middle = low + (high - low) / 2;
        let Some((_, start)) = line_at(file, middle).map_err(wrong())? else {
            high = middle;
            continue;
        };
        let found = line_at(file, start).map_err(wrong())?;
        match found.and_then(|(line, _)| Line::seq(&line)) {
            Some(here) if here <= seq => low = start,
            _ => high = middle,
        }
    }
    while let Some((line, next)) = line_at(file, low).map_err(wrong())? {
        match Line::seq(&line) {
            Some(here) if here == seq => return Ok(Some(low)),
            Some(here) if here < seq => low = next,
            _ => break,
        }
    }
    Ok(None)
}

/// The bytes from `offset` to the end of its line, and where the next line begins.
pub(crate) fn line_at(file: &File, offset: u64) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut bytes = Vec::new();
    let mut step = 4096;
    while bytes.len() <= LONGEST {
        let from = bytes.len();
        bytes.resize(from + step, 0);
        let count = read_at(file, &mut bytes[from..], offset + from as u64)?;
        bytes.truncate(from + count);
        if let Some(end) = memchr::memchr(b'\n', &bytes[from..]) {
            bytes.truncate(from + end);
            let next = offset + bytes.len() as u64 + 1;
            return Ok(Some((bytes, next)));
        }
        if count < step {
            return Ok(None);
        }
        step *= 4;
    }
    Ok(None)
}

/// Fills the buffer, up to the end of the file.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
