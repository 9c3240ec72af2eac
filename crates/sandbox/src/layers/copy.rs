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

/// Gives back how many bytes were written.
pub(super) fn copy(from: &File, size: u64, to: &File) -> io::Result<u64> {
    let mut written = 0;
    for_each_piece(from, size, |at, piece| {
        written += piece.len() as u64;
        to.write_all_at(piece, at)
    })?;
    to.set_len(size)?;
    Ok(written)
}

/// Whether two files of this size hold the same.
pub(super) fn same(a: &File, b: &File, size: u64) -> io::Result<bool> {
    Ok(holds_all_of(a, b, size)? && holds_all_of(b, a, size)?)
}

fn holds_all_of(b: &File, a: &File, size: u64) -> io::Result<bool> {
    let mut buffer = Vec::new();
    let mut same = true;
    for_each_piece(a, size, |at, piece| {
        if same {
            buffer.resize(piece.len(), 0);
            same = read_full(b, &mut buffer, at)? == piece.len() && buffer == piece;
        }
        Ok(())
    })?;
    Ok(same)
}
