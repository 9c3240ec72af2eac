//! Whether a log is what was written: every record, their order, and the heads over them.

mod fault;
mod keyring;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

pub use fault::{Fault, Flaw};

use crate::line::{self, Line};
use crate::log::{Cursor, Lines, LogError, Snapshot, is_rotation};
use crate::note::PublicKey;
use crate::tree::Frontier;
use crate::{Hash, Head};
use keyring::Keyring;

/// What the log is held against, besides itself.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// A signed head that was kept elsewhere.
    pub head: Option<String>,
    /// A key of the log that was kept elsewhere. Without it, the one beside the log is taken.
    pub key: Option<PublicKey>,
}

/// A log that is what was written.
#[derive(Clone, Debug)]
pub struct Verified {
    pub records: u64,
    pub segments: u64,
    /// The newest signed head of the log.
    pub head: Head,
    /// Records after that head: written, but not signed for yet.
    pub unsigned: u64,
    /// Bytes at the end that are no complete record; they are cut off by the next writer.
    pub unfinished: u64,
    /// How often the key was changed.
    pub rotations: u64,
}

/// Reads the whole log, in memory that does not grow with it.
pub fn verify(path: impl AsRef<Path>, expected: &Expected) -> Result<Verified, Fault> {
    let snapshot = Snapshot::open(path)?;
    let claims = Claims::of(&snapshot, expected)?;
    let mut scan = Scan::new(&claims, nodes(&snapshot));
    scan.run(&snapshot, 0)?;
    claims.settle(scan, &snapshot, expected)
}

/// All keys that the log has had. Only [`verify`] says whether they vouch for each other.
pub fn keys(path: impl AsRef<Path>) -> Result<Vec<PublicKey>, Fault> {
    let mut keys = Keyring::default();
    let mut found = Ok(());
    Cursor::new(path).read(|line| {
        if line.seq == 0 {
            found = keys.created(line.record);
        } else if is_rotation(line.record) {
            found = keys.rotated(line.seq, line.record);
        }
        found.is_ok()
    })?;
    found.map(|()| keys.into_keys())
}

fn nodes(snapshot: &Snapshot) -> Option<BufReader<File>> {
    let file = snapshot.nodes().ok()?.0;
    Some(BufReader::with_capacity(256 << 10, file))
}

/// The heads that the records have to fit.
struct Claims {
    own: Option<Head>,
    outer: Option<Head>,
}

impl Claims {
    fn of(snapshot: &Snapshot, expected: &Expected) -> Result<Self, Fault> {
        let own = snapshot.head().map(Head::unverified).transpose();
        let own = own.map_err(|error| Fault::of(Flaw::Head(error.to_string())))?;
        let outer = expected.head.as_deref().map(Head::unverified).transpose();
        let outer = outer.map_err(|error| Fault::of(Flaw::GivenHead(error.to_string())))?;
        Ok(Self { own, outer })
    }

    fn sizes(&self) -> [Option<u64>; 2] {
        [&self.own, &self.outer].map(|head| head.as_ref().map(|head| head.size))
    }

    /// Holds what was read against the heads, and the heads against the keys.
    fn settle<N>(
        self,
        scan: Scan<N>,
        snapshot: &Snapshot,
        expected: &Expected,
    ) -> Result<Verified, Fault> {
        let records = scan.frontier.size();
        if let Some(size) = self.sizes().into_iter().flatten().max()
            && size > records
        {
            return Err(Fault::at(records, Flaw::Truncated(size)));
        }
        let trusted = match &expected.key {
            Some(key) => key.clone(),
            None => snapshot.key()?,
        };
        scan.keys.trust(&trusted)?;
        let [own_root, outer_root] = scan.roots;
        if let (Some(head), Some(note)) = (&self.outer, &expected.head) {
            let wrong = |problem| Fault::of(Flaw::GivenHead(problem));
            scan.keys.open(note, head.size).map_err(wrong)?;
            if outer_root != Some(head.root) {
                return Err(Fault::of(Flaw::Replaced(head.size)));
            }
        }
        let (Some(head), Some(note)) = (self.own, snapshot.head()) else {
            return Err(Fault::of(Flaw::Head("it is missing".into())));
        };
        let wrong = |problem| Fault::of(Flaw::Head(problem));
        scan.keys.open(note, head.size).map_err(wrong)?;
        if own_root != Some(head.root) {
            return Err(Fault::of(Flaw::Head(
                "the records are not those it signs".into(),
            )));
        }
        Ok(Verified {
            records,
            segments: snapshot.segments().len() as u64,
            unsigned: records - head.size,
            head,
            unfinished: scan.unfinished,
            rotations: scan.keys.rotations(),
        })
    }
}

/// What is known after some lines. What comes next depends on nothing else that was read before.
#[derive(Clone)]
struct Scan<N> {
    frontier: Frontier,
    last: Hash,
    keys: Keyring,
    nodes: Option<N>,
    /// Sizes at which the root is needed, and the roots.
    wanted: [Option<u64>; 2],
    roots: [Option<Hash>; 2],
    unfinished: u64,
}

impl<N: Read> Scan<N> {
    fn new(claims: &Claims, nodes: Option<N>) -> Self {
        let mut scan = Self {
            frontier: Frontier::default(),
            last: Hash::ZERO,
            keys: Keyring::default(),
            nodes,
            wanted: claims.sizes(),
            roots: [None, None],
            unfinished: 0,
        };
        scan.capture();
        scan
    }

    /// Reads all segments from one on.
    fn run(&mut self, snapshot: &Snapshot, from: usize) -> Result<(), Fault> {
        let count = snapshot.segments().len();
        for (place, piece) in snapshot.segments().iter().enumerate().skip(from) {
            if piece.start != self.frontier.size() {
                let flaw = Flaw::OutOfPlace(piece.start);
                return Err(Fault::at(self.frontier.size(), flaw).in_file(&piece.path, 1));
            }
            let last = place + 1 == count;
            self.piece(piece.lines(0)?, &piece.path, piece.length, last)?;
        }
        Ok(())
    }

    /// Reads lines to the end of a segment, which is `length` bytes away.
    fn piece<R: Read>(
        &mut self,
        mut lines: Lines<R>,
        path: &Path,
        length: u64,
        last: bool,
    ) -> Result<(), Fault> {
        let (mut number, mut read) = (0, 0);
        while let Some(bytes) = lines.next().map_err(LogError::io("read", path))? {
            number += 1;
            read += bytes.len() as u64 + 1;
            self.line(bytes)
                .map_err(|fault| fault.in_file(path, number))?;
        }
        if read < length {
            if !last {
                let fault = Fault::at(self.frontier.size(), Flaw::Incomplete);
                return Err(fault.in_file(path, number + 1));
            }
            self.unfinished = length - read;
        }
        Ok(())
    }

    fn line(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        let expected = self.frontier.size();
        let line = Line::check(bytes).map_err(|flaw| {
            Fault::at(
                expected,
                match flaw {
                    line::Flaw::Format => Flaw::NotARecord,
                    line::Flaw::Hash => Flaw::Changed,
                },
            )
        })?;
        if line.seq != expected {
            return Err(Fault::at(expected, Flaw::OutOfPlace(line.seq)));
        }
        if line.prev != self.last {
            return Err(Fault::at(expected, Flaw::Unlinked));
        }
        if expected == 0 {
            self.keys.created(line.record)?;
        } else if is_rotation(line.record) {
            self.keys.rotated(line.seq, line.record)?;
        }
        self.last = line.hash;
        let nodes = &mut self.nodes;
        let mut stored = true;
        self.frontier.push(line.hash, |hash| {
            let mut found = [0; 32];
            let reader = nodes.as_mut();
            stored &=
                reader.is_some_and(|nodes| nodes.read_exact(&mut found).is_ok()) && found == hash.0;
        });
        if !stored {
            return Err(Fault::at(expected, Flaw::Nodes));
        }
        self.capture();
        Ok(())
    }

    fn capture(&mut self) {
        for (size, root) in self.wanted.iter().zip(&mut self.roots) {
            if *size == Some(self.frontier.size()) {
                *root = Some(self.frontier.root());
            }
        }
    }
}
