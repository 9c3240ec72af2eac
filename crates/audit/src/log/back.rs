//! Reading from the newest record to older ones, without what comes before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::{LogError, Result};
use super::lines::LONGEST;
use super::read::Snapshot;
use crate::line::Line;

const CHUNK: u64 = 64 << 10;

/// Gives out the records of a log, the newest first, until `each` says to stop. A record whose
/// hash is wrong ends it with an error.
pub fn read_back(path: impl AsRef<Path>, mut each: impl FnMut(&Line<'_>) -> bool) -> Result<()> {
    let snapshot = Snapshot::open(path)?;
    for piece in snapshot.segments().iter().rev() {
        let wrong = || LogError::io("read", &piece.path);
        let mut lines = Back::new(
            brig_input::open_unlinked(&piece.path).map_err(wrong())?,
            piece.length,
        );
        while let Some(bytes) = lines.next().map_err(wrong())? {
            let seq = Line::seq(bytes).unwrap_or(piece.start);
            let line = Line::check(bytes)
                .map_err(|_| LogError::damaged(seq, "its hash does not match"))?;
            if !each(&line) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The complete lines of a file, the last first, in memory that does not grow with it.
struct Back {
    file: File,
    /// Where what was read begins.
    at: u64,
    /// Complete lines, the first perhaps without its beginning.
    rest: Vec<u8>,
    /// Whether the last line that was given out is still in `rest`.
    given: usize,
    /// Whether what follows the last newline was dropped.
    trimmed: bool,
}

impl Back {
    fn new(file: File, length: u64) -> Self {
        Self {
            file,
            at: length,
            rest: Vec::new(),
            given: 0,
            trimmed: false,
        }
    }

    fn next(&mut self) -> io::Result<Option<&mut [u8]>> {
        let left = self.rest.len() - std::mem::take(&mut self.given);
        self.rest.truncate(left);
        loop {
            // Without the newline at its own end.
            let body = self.rest.len().saturating_sub(1);
            let before = memchr::memrchr(b'\n', &self.rest[..body]);
            let whole = before.is_some() || (self.at == 0 && !self.rest.is_empty());
            if self.trimmed && whole {
                let start = before.map_or(0, |newline| newline + 1);
                self.given = self.rest.len() - start;
                return Ok(Some(&mut self.rest[start..body]));
            }
            if self.at == 0 || self.rest.len() > 2 * LONGEST {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    /// Reads what is before, at least as much as is there, so that long lines take no longer.
    fn fill(&mut self) -> io::Result<()> {
        let step = CHUNK.max(self.rest.len() as u64).min(self.at);
        let mut bytes = vec![0; usize::try_from(step).unwrap_or(0)];
        self.at -= step;
        self.file.read_exact_at(&mut bytes, self.at)?;
        bytes.append(&mut self.rest);
        if !self.trimmed
            && let Some(newline) = memchr::memrchr(b'\n', &bytes)
        {
            bytes.truncate(newline + 1);
            self.trimmed = true;
        }
        self.rest = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn back(text: &[u8]) -> Vec<String> {
        let mut file = tempfile::tempfile().expect("file");
        file.write_all(text).expect("write");
        let mut lines = Back::new(file, text.len() as u64);
        let mut all = Vec::new();
        while let Some(line) = lines.next().expect("read") {
            all.push(String::from_utf8_lossy(line).into_owned());
        }
        all
    }

    #[test]
    fn lines_come_whole_and_the_last_first() {
        assert_eq!(back(b""), [""; 0]);
        assert_eq!(back(b"rest"), [""; 0]);
        assert_eq!(back(b"one\n"), ["one"]);
        assert_eq!(back(b"\n\nx\n"), ["x", "", ""]);
        assert_eq!(
            back(b"one\ntwo\n\nthree\nrest"),
            ["three", "", "two", "one"]
        );
    }

    #[test]
    fn lines_of_any_length_are_the_same_as_forwards() {
        let mut text = Vec::new();
        let mut wanted = Vec::new();
        for n in 0..400_usize {
            let line = format!("{n}:{}", "x".repeat((n * 7919) % 3000 + n % 7 * 40_000));
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
            wanted.insert(0, line);
        }
        text.extend_from_slice(b"unfinished");
        assert!(back(&text) == wanted);
        let endless = vec![b'x'; LONGEST * 4];
        assert!(back(&endless).is_empty());
    }
}
