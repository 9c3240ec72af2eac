use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::base::{Base, PRUNED};
use super::directory::LogDirectory;
use super::error::{LogError, Result};
use super::keys;
use super::lines::Lines;
use super::nodes::{self, NodeFile};
use super::segment;
use super::writer::HEAD;
use crate::Head;
use crate::line::Line;
use crate::note::{PublicKey, SecretKey};
use crate::tag::TagKey;

/// A log as it was at one moment. What is added later is not seen.
#[derive(Debug)]
pub struct Snapshot {
    directory: LogDirectory,
    segments: Vec<Piece>,
    head: Option<String>,
    pruned: Option<(Base, String)>,
}

#[derive(Debug)]
pub(crate) struct Piece {
    pub start: u64,
    pub path: PathBuf,
    pub length: u64,
    pub device: u64,
    pub inode: u64,
    /// When the kernel last saw it change, in seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl Snapshot {
    /// Reads the list of segments and the newest head, while no process writes. Creates nothing: a missing log is
    /// [`LogError::NoLog`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let directory = LogDirectory::read_only(path.as_ref())?;
        let guard = directory.lock_shared()?;
        let piece = |start| {
            let path = directory.segment(start);
            let found = fs::metadata(&path).map_err(LogError::io("find", &path))?;
            Ok(Piece {
                start,
                path,
                length: found.len(),
                device: found.dev(),
                inode: found.ino(),
                changed: (found.ctime(), found.ctime_nsec()),
            })
        };
        let (starts, has_pruned) = directory.list(PRUNED.0)?;
        let pruned = match has_pruned {
            true => Base::of_pruned(&directory)?,
            false => None,
        };
        let first = pruned.as_ref().map_or(0, |(base, _)| base.size);
        let segments: Vec<Piece> = (starts.into_iter())
            // What is left of those that were pruned counts no more.
            .filter(|start| *start >= first)
            .map(piece)
            .collect::<Result<_>>()?;
        let head = directory.read_text(HEAD)?;
        drop(guard);
        if segments.is_empty() && head.is_none() {
            return Err(LogError::NoLog(directory.path().to_owned()));
        }
        Ok(Self {
            directory,
            segments,
            head,
            pruned,
        })
    }

    /// The newest signed head, as it is on disk.
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }

    pub(crate) fn parsed_head(&self) -> Result<Head> {
        let note = self.head.as_deref();
        let note = note.ok_or_else(|| LogError::Head("it is missing".into()))?;
        Head::unverified(note).map_err(|error| LogError::Head(error.to_string()))
    }

    /// The public key in the log's directory.
    pub fn key(&self) -> Result<PublicKey> {
        keys::public(&self.directory)
    }

    /// The key of the tags on records that no head covers yet, if the secret key can be read.
    pub(crate) fn tags(&self) -> Option<(PublicKey, TagKey)> {
        let key = self.secret()?;
        Some((key.public().clone(), key.tags()))
    }

    pub(crate) fn secret(&self) -> Option<SecretKey> {
        keys::load(&self.directory).ok()?
    }

    /// The summary of pruned records, and the note it comes from.
    pub(crate) fn pruned(&self) -> Option<(&Base, &str)> {
        let (base, note) = self.pruned.as_ref()?;
        Some((base, note))
    }

    /// How many records were removed from the beginning.
    pub fn first(&self) -> u64 {
        self.pruned.as_ref().map_or(0, |(base, _)| base.size)
    }

    /// The size of the records on disk, in bytes and in segments.
    pub fn extent(&self) -> (u64, usize) {
        let bytes = self.segments.iter().map(|piece| piece.length).sum();
        (bytes, self.segments.len())
    }

    pub(crate) fn segments(&self) -> &[Piece] {
        &self.segments
    }

    pub(crate) fn directory(&self) -> &LogDirectory {
        &self.directory
    }

    /// Whether nothing but the records, of which there may be one, says that there was more: a writer
    /// would create such a log again.
    pub(crate) fn is_unfinished(&self) -> bool {
        let nodes = fs::metadata(self.directory.file(nodes::NAME)).map_or(0, |found| found.len());
        self.pruned.is_none() && nodes <= nodes::OF_ONE_RECORD
    }

    pub(crate) fn nodes(&self) -> Result<NodeFile> {
        let path = self.directory.file(nodes::NAME);
        let file = brig_input::open_unlinked(&path);
        Ok(NodeFile(file.map_err(LogError::io("open", &path))?))
    }

    /// The line of one record, without its newline.
    pub fn line(&self, seq: u64) -> Result<Vec<u8>> {
        let piece = self.segments.iter().rev().find(|piece| piece.start <= seq);
        let piece = piece.ok_or(LogError::NoRecord(seq))?;
        let wrong = || LogError::io("read", &piece.path);
        let file = brig_input::open_unlinked(&piece.path).map_err(wrong())?;
        let offset = segment::find(&file, &piece.path, seq)?.ok_or(LogError::NoRecord(seq))?;
        let found = segment::line_at(&file, offset).map_err(wrong())?;
        Ok(found.ok_or(LogError::NoRecord(seq))?.0)
    }
}

impl Piece {
    pub(crate) fn lines(&self, from: u64) -> Result<Lines<io::Take<File>>> {
        let wrong = || LogError::io("read", &self.path);
        let mut file = brig_input::open_unlinked(&self.path).map_err(wrong())?;
        file.seek(SeekFrom::Start(from)).map_err(wrong())?;
        Ok(Lines::new(file.take(self.length.saturating_sub(from))))
    }
}

/// Goes through the records of a log, and on to those that are added later.
#[derive(Debug)]
pub struct Cursor {
    path: PathBuf,
    segment: u64,
    offset: u64,
}

impl Cursor {
    /// At the first record.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            segment: 0,
            offset: 0,
        }
    }

    /// Gives out what is there now, until `each` says to stop. A record whose hash is wrong ends
    /// it with an error.
    pub fn read(&mut self, mut each: impl FnMut(&Line<'_>) -> bool) -> Result<()> {
        let snapshot = Snapshot::open(&self.path)?;
        for piece in snapshot.segments() {
            if piece.start < self.segment {
                continue;
            }
            if piece.start > self.segment {
                (self.segment, self.offset) = (piece.start, 0);
            }
            let mut lines = piece.lines(self.offset)?;
            while let Some(bytes) = lines.next().map_err(LogError::io("read", &piece.path))? {
                let length = bytes.len() as u64 + 1;
                let seq = Line::seq(bytes).unwrap_or(piece.start);
                let line = Line::check(bytes)
                    .map_err(|_| LogError::damaged(seq, "its hash does not match"))?;
                self.offset += length;
                if !each(&line) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
