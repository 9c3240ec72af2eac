use std::io::{self, Read};

/// The longest line. A record of more is refused.
pub(crate) const LONGEST: usize = 1 << 20;
const CHUNK: usize = 256 << 10;

/// Lines of a file, one after the other, in memory that does not grow with it.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    /// What was read and not yet given out.
    start: usize,
    end: usize,
    /// How much of that is known to contain no newline.
    searched: usize,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self::in_chunks(source, CHUNK)
    }

    pub(crate) fn in_chunks(source: R, bytes: usize) -> Self {
        Self {
            source,
            buffer: vec![0; bytes],
            start: 0,
            end: 0,
            searched: 0,
        }
    }

    /// The next complete line, without its newline. Nothing if the rest is not a complete line.
    pub(crate) fn next(&mut self) -> io::Result<Option<&mut [u8]>> {
        loop {
            let from = self.start + self.searched;
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[from..self.end]) {
                let (start, end) = (self.start, from + found);
                self.start = end + 1;
                self.searched = 0;
                return Ok(Some(&mut self.buffer[start..end]));
            }
            self.searched = self.end - self.start;
            if self.searched > LONGEST || !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn lines_come_whole_however_they_are_read() {
        let text = b"one\n\ntwo\nthree\nrest";
        for step in 1..text.len() {
            let mut lines = Lines::new(Slow(text, step));
            let mut all = Vec::new();
            while let Some(line) = lines.next().expect("read") {
                all.push(String::from_utf8_lossy(line).into_owned());
            }
            assert_eq!(all, ["one", "", "two", "three"]);
        }
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_read_and_an_endless_one_is_not() {
        let long = [vec![b'x'; CHUNK * 2 + 3], vec![b'\n']].concat();
        let mut lines = Lines::new(&long[..]);
        let length = lines.next().expect("read").map(|line| line.len());
        assert_eq!(length, Some(CHUNK * 2 + 3));
        let endless = vec![0; LONGEST * 3];
        let mut lines = Lines::new(&endless[..]);
        assert!(lines.next().expect("read").is_none());
        assert!(lines.buffer.len() <= LONGEST * 2);
    }
}
