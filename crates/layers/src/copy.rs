//! Copying one file: its data only, never its holes, so that a huge empty file stays cheap.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

pub(super) const BLOCK: usize = 4096;
const CHUNK: usize = 64 * BLOCK;

/// Calls `each` with every piece of data up to `size`, in order, and its place in the file. A
/// piece begins at the border of a block and holds whole blocks, except at the end, wherever the
/// file system's own extents begin.
pub(super) fn for_each_piece(
    file: &File,
    size: u64,
    mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let block = BLOCK as u64;
    let mut at = 0;
    while at < size {
        let Some((start, stop)) = next_extent(file, at)? else {
            break;
        };
        at = at.max(start / block * block);
        let stop = stop
            .checked_next_multiple_of(block)
            .unwrap_or(size)
            .min(size);
        while at < stop {
            let want = usize::try_from(stop - at).unwrap_or(CHUNK).min(CHUNK);
            let read = read_full(file, &mut buffer[..want], at)?;
            each(at, &buffer[..read])?;
            if read < want {
                return Ok(());
            }
            at += read as u64;
        }
    }
    Ok(())
}

/// Less than asked for only at the end of the file.
fn read_full(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn next_extent(file: &File, from: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not know of holes has none.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => from,
        Err(error) => return Err(error.into()),
    };
    let stop = match seek(file, SeekFrom::Hole(start)) {
        Ok(stop) => stop,
        Err(Errno::INVAL | Errno::OPNOTSUPP) => u64::MAX,
        Err(error) => return Err(error.into()),
    };
    Ok(Some((start, stop)))
}

/// Gives back how many bytes were written, or nothing if it would be more than `room`: then no more than that was.
pub(super) fn copy(from: &File, size: u64, to: &File, room: u64) -> io::Result<Option<u64>> {
    let mut written = 0;
    let mut fits = true;
    for_each_piece(from, size, |at, piece| {
        fits &= written + piece.len() as u64 <= room;
        if !fits {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written += piece.len() as u64;
        to.write_all_at(piece, at)
    })
    .or_else(|error| if fits { Err(error) } else { Ok(()) })?;
    if !fits {
        return Ok(None);
    }
    to.set_len(size)?;
    Ok(Some(written))
}

/// Compares what two files hold.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// Read so far, of all files that were compared.
    pub bytes: u64,
}

impl Comparison {
    /// Whether two files of this size hold the same, wherever they have holes.
    pub(crate) fn same(&mut self, a: &File, b: &File, size: u64) -> io::Result<bool> {
        let mut at = 0;
        while at < size {
            let (start, stop) = match next_extent(a, at)? {
                Some((start, stop)) => (start.clamp(at, size), stop.min(size)),
                None => (size, size),
            };
            if !self.is_hole(b, at, start)? || !self.equal(a, b, start, stop)? {
                return Ok(false);
            }
            at = stop.max(start);
        }
        Ok(true)
    }

    fn equal(&mut self, a: &File, b: &File, mut at: u64, stop: u64) -> io::Result<bool> {
        while at < stop {
            let want = usize::try_from(stop - at).unwrap_or(CHUNK).min(CHUNK);
            self.grow(want);
            let read = read_full(a, &mut self.ours[..want], at)?;
            let other = read_full(b, &mut self.theirs[..want], at)?;
            self.bytes += read as u64;
            // One that became shorter meanwhile is not the same.
            if read < want || other < want || self.ours[..want] != self.theirs[..want] {
                return Ok(false);
            }
            at += want as u64;
        }
        Ok(true)
    }

    /// Whether a file holds nothing but zeros there.
    fn is_hole(&mut self, file: &File, mut at: u64, stop: u64) -> io::Result<bool> {
        while at < stop {
            let Some((start, end)) = next_extent(file, at)? else {
                return Ok(true);
            };
            at = at.max(start);
            let end = end.min(stop);
            while at < end {
                let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
                self.grow(want);
                let read = read_full(file, &mut self.ours[..want], at)?;
                self.bytes += read as u64;
                if read < want || self.ours[..read].iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                at += want as u64;
            }
        }
        Ok(true)
    }

    fn grow(&mut self, length: usize) {
        if self.ours.len() < length {
            self.ours.resize(length, 0);
            self.theirs.resize(length, 0);
        }
    }
}
