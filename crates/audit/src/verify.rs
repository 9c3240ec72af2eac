//! Whether a log is what was written: every record, their order, and the heads over them.

mod checkpoint;
mod error;
mod keyring;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

pub use error::{VerifyError, VerifyErrorKind};

use crate::line::{self, Line};
use crate::log::{Base, Cursor, Lines, LogError, Snapshot, is_rotation, is_signed};
use crate::note::PublicKey;
use crate::tag::TagKey;
use crate::tree::{self, Frontier};
use crate::{Hash, Head};
use checkpoint::Checkpoint;
use keyring::Keyring;

/// What the log is compared with, besides itself.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// A signed head that was kept elsewhere.
    pub head: Option<String>,
    /// A key of the log that was kept elsewhere. Without it, the one in the log's directory is used.
    pub key: Option<PublicKey>,
}

/// A log that is what was written.
#[derive(Clone, Debug)]
pub struct Verified {
    /// How many records the log has. Pruned ones count.
    pub records: u64,
    /// How many segments the log has, read or skipped.
    pub segments: u64,
    /// The newest signed head of the log.
    pub head: Head,
    /// Records after that head: written, but not signed for yet.
    pub unsigned: u64,
    /// Bytes at the end that are no complete record; they are cut off by the next writer.
    pub unfinished: u64,
    /// How often the key was changed.
    pub rotations: u64,
    /// Records that were removed from the beginning; the heads still cover them.
    pub pruned: u64,
    /// The first record that was read: those before it were verified earlier, or pruned.
    pub read_from: u64,
}

/// Reads the whole log, in memory that does not grow with it.
pub fn verify(path: impl AsRef<Path>, expected: &Expected) -> Result<Verified, VerifyError> {
    let snapshot = Snapshot::open(path)?;
    let (verified, base) = from(&snapshot, None, expected, None)?;
    // After the log itself, which matters more.
    Checkpoint::load(&snapshot)?;
    if let Some(base) = base {
        Checkpoint::save(base, &snapshot);
    }
    Ok(verified)
}

/// As [`verify`], without the segments that were verified before and have not changed
/// since, as far as the kernel knows.
pub fn verify_since_last(
    path: impl AsRef<Path>,
    expected: &Expected,
) -> Result<Verified, VerifyError> {
    let snapshot = Snapshot::open(path)?;
    let known = Checkpoint::load(&snapshot)?.map(|checkpoint| checkpoint.base);
    let (verified, base) = from(&snapshot, known.as_ref(), expected, None)?;
    if let Some(base) = base {
        Checkpoint::save(base, &snapshot);
    }
    Ok(verified)
}

/// Verifies the log, and gives the base at the beginning of the segment of record `at`, else of
/// the last one.
pub(crate) fn from(
    snapshot: &Snapshot,
    known: Option<&Base>,
    expected: &Expected,
    at: Option<u64>,
) -> Result<(Verified, Option<Base>), VerifyError> {
    let claims = Claims::of(snapshot, expected)?;
    let mut scan = Scan::new(&claims, None);
    scan.tags = snapshot.tags();
    let last = snapshot.segments().last().map(|piece| piece.start);
    scan.keep_at = at.or(last);
    if let Some(base) = known.or(snapshot.pruned().map(|(base, _)| base)) {
        scan.start_at(base)?;
    }
    let first = scan.frontier.size();
    scan.nodes = nodes(snapshot, first);
    if let (Some(head), true) = (&claims.outer, first > 0)
        && head.size < first
        && begins_with(snapshot, head, &scan.frontier)
    {
        scan.roots[1] = Some(head.root);
    }
    let place = snapshot
        .segments()
        .iter()
        .position(|piece| piece.start >= first);
    scan.run(snapshot, place.unwrap_or(usize::MAX))?;
    let base = scan.kept.take();
    if let Some((_, note)) = snapshot.pruned()
        && !is_signed(note, scan.keys.iter())
    {
        return Err(VerifyError::of(VerifyErrorKind::Pruned(
            "no key of the log signed it".into(),
        )));
    }
    let mut verified = claims.settle(scan, snapshot, expected)?;
    verified.pruned = snapshot.first();
    verified.read_from = first;
    Ok((verified, base))
}

/// Whether the stored tree leads from a head to a later tree.
fn begins_with(snapshot: &Snapshot, head: &Head, later: &Frontier) -> bool {
    let Ok(nodes) = snapshot.nodes() else {
        return false;
    };
    let path = tree::consistency(&nodes, head.size, later.size());
    path.is_ok_and(|path| {
        tree::verify_consistency(head.size, &head.root, later.size(), &later.root(), &path)
    })
}

/// All keys that the log has had. Only [`verify`] checks that they signed each other.
pub fn keys(path: impl AsRef<Path>) -> Result<Vec<PublicKey>, VerifyError> {
    let path = path.as_ref();
    let mut keys = match Snapshot::open(path)?.pruned() {
        Some((base, _)) => Keyring::replay(&base.keys)?,
        None => Keyring::default(),
    };
    let mut found = Ok(());
    Cursor::new(path).read(|line| {
        if line.seq == 0 {
            found = keys.created(line.record);
        } else if is_rotation(line.record) {
            found = keys.rotated(line.seq, line.record);
        }
        found.is_ok()
    })?;
    found.map(|()| keys.iter().cloned().collect())
}

/// The nodes that are stored after those of a tree of this size.
fn nodes(snapshot: &Snapshot, size: u64) -> Option<BufReader<File>> {
    let mut file = snapshot.nodes().ok()?.0;
    file.seek(SeekFrom::Start(tree::stored_count(size) * 32))
        .ok()?;
    Some(BufReader::with_capacity(256 << 10, file))
}

/// The heads that the records have to fit.
struct Claims {
    own: Option<Head>,
    outer: Option<Head>,
}

impl Claims {
    fn of(snapshot: &Snapshot, expected: &Expected) -> Result<Self, VerifyError> {
        let own = snapshot.head().map(Head::unverified).transpose();
        let own = own.map_err(|error| VerifyError::of(VerifyErrorKind::Head(error.to_string())))?;
        let outer = expected.head.as_deref().map(Head::unverified).transpose();
        let outer = outer
            .map_err(|error| VerifyError::of(VerifyErrorKind::GivenHead(error.to_string())))?;
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
    ) -> Result<Verified, VerifyError> {
        let records = scan.frontier.size();
        if let Some(size) = self.sizes().into_iter().flatten().max()
            && size > records
        {
            return Err(VerifyError::at(records, VerifyErrorKind::Truncated(size)));
        }
        if self.own.is_none() && records <= 1 && snapshot.is_unfinished() {
            return Err(VerifyError::of(VerifyErrorKind::Unfinished));
        }
        let trusted = match &expected.key {
            Some(key) => key.clone(),
            None => snapshot.key()?,
        };
        scan.keys.trust(&trusted)?;
        let signed = self.own.as_ref().map_or(0, |head| head.size);
        // Without the key, all that is known is that no head covers them.
        let can_tell = scan.tags.as_ref().map(|(key, _)| key) == scan.keys.last();
        if can_tell && scan.vouched.max(signed) < records {
            return Err(VerifyError::at(
                scan.vouched.max(signed),
                VerifyErrorKind::Added,
            ));
        }
        if let Some(record) = scan.bad_nodes {
            return Err(VerifyError::at(record, VerifyErrorKind::Nodes));
        }
        let [own_root, outer_root] = scan.roots;
        if let (Some(head), Some(note)) = (&self.outer, &expected.head) {
            let wrong = |problem| VerifyError::of(VerifyErrorKind::GivenHead(problem));
            scan.keys.open(note, head.size).map_err(wrong)?;
            if outer_root != Some(head.root) {
                return Err(VerifyError::of(VerifyErrorKind::Replaced(head.size)));
            }
        }
        let (Some(head), Some(note)) = (self.own, snapshot.head()) else {
            return Err(VerifyError::of(VerifyErrorKind::Head(
                "it is missing".into(),
            )));
        };
        let wrong = |problem| VerifyError::of(VerifyErrorKind::Head(problem));
        scan.keys.open(note, head.size).map_err(wrong)?;
        if own_root != Some(head.root) {
            return Err(VerifyError::of(VerifyErrorKind::Head(
                "the records do not match it".into(),
            )));
        }
        Ok(Verified {
            records,
            segments: snapshot.segments().len() as u64,
            unsigned: records - head.size,
            head,
            unfinished: scan.unfinished,
            rotations: scan.keys.rotations(),
            pruned: 0,
            read_from: 0,
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
    /// What the tags of lines are checked with, after the newest head.
    tags: Option<(PublicKey, TagKey)>,
    /// Records that the newest head or a tag covers.
    vouched: u64,
    /// The segment at whose beginning the state is kept, and that state.
    keep_at: Option<u64>,
    /// The first record after the head whose nodes are not stored.
    bad_nodes: Option<u64>,
    kept: Option<Base>,
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
            tags: None,
            vouched: 0,
            keep_at: None,
            bad_nodes: None,
            kept: None,
        };
        scan.capture();
        scan
    }

    /// Continues after records that a base replaces.
    fn start_at(&mut self, base: &Base) -> Result<(), VerifyError> {
        let wrong = || VerifyError::of(VerifyErrorKind::Pruned("it contains no tree".into()));
        self.frontier = base.frontier().ok_or_else(wrong)?;
        self.last = base.last().ok_or_else(wrong)?;
        self.keys = Keyring::replay(&base.keys)?;
        self.capture();
        Ok(())
    }

    /// Reads all segments from one on.
    fn run(&mut self, snapshot: &Snapshot, from: usize) -> Result<(), VerifyError> {
        let count = snapshot.segments().len();
        for (place, piece) in snapshot.segments().iter().enumerate().skip(from) {
            if piece.start != self.frontier.size() {
                let kind = VerifyErrorKind::OutOfPlace(piece.start);
                return Err(VerifyError::at(self.frontier.size(), kind).in_file(&piece.path, 1));
            }
            if self.keep_at == Some(piece.start) && piece.start > 0 {
                let keys = self.keys.records().to_vec();
                self.kept = Some(Base::new(&self.frontier, &self.last, keys));
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
    ) -> Result<(), VerifyError> {
        let (mut number, mut read) = (0, 0);
        while let Some(bytes) = lines.next().map_err(LogError::io("read", path))? {
            number += 1;
            read += bytes.len() as u64 + 1;
            self.line(bytes)
                .map_err(|fault| fault.in_file(path, number))?;
        }
        if read < length {
            if !last {
                let fault = VerifyError::at(self.frontier.size(), VerifyErrorKind::Incomplete);
                return Err(fault.in_file(path, number + 1));
            }
            self.unfinished = length - read;
        }
        Ok(())
    }

    fn line(&mut self, bytes: &mut [u8]) -> Result<(), VerifyError> {
        let expected = self.frontier.size();
        let line = Line::check(bytes).map_err(|error| {
            VerifyError::at(
                expected,
                match error {
                    line::LineError::Format => VerifyErrorKind::NotARecord,
                    line::LineError::Hash => VerifyErrorKind::Changed,
                },
            )
        })?;
        if line.seq != expected {
            return Err(VerifyError::at(
                expected,
                VerifyErrorKind::OutOfPlace(line.seq),
            ));
        }
        if line.prev != self.last {
            return Err(VerifyError::at(expected, VerifyErrorKind::Unlinked));
        }
        if expected == 0 {
            self.keys.created(line.record)?;
        } else if is_rotation(line.record) {
            self.keys.rotated(line.seq, line.record)?;
        }
        self.last = line.hash;
        let hash = line.hash;
        if let Some((_, tags)) = &self.tags
            && self.wanted[0].is_none_or(|signed| expected >= signed)
            && line.tag.is_some()
            && line::is_vouched(bytes, tags)
        {
            self.vouched = expected + 1;
        }
        let nodes = &mut self.nodes;
        let mut stored = true;
        self.frontier.push(hash, |hash| {
            let mut found = [0; 32];
            let reader = nodes.as_mut();
            stored &=
                reader.is_some_and(|nodes| nodes.read_exact(&mut found).is_ok()) && found == hash.0;
        });
        if !stored {
            // After the head it matters more whether a tag covers the record.
            if self.wanted[0].is_none_or(|signed| expected < signed) {
                return Err(VerifyError::at(expected, VerifyErrorKind::Nodes));
            }
            self.bad_nodes.get_or_insert(expected);
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
