use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::error::{LogError, Result};
use super::folder::Folder;
use super::keys;
use super::lines::Lines;
use super::nodes::{self, NodeFile};
use super::segment;
use super::writer::HEAD;
use crate::Head;
use crate::line::Line;
use crate::note::PublicKey;

/// A log as it was at one moment. What is added later is not seen.
#[derive(Debug)]
pub struct Snapshot {
    folder: Folder,
    segments: Vec<Piece>,
    head: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Piece {
    pub start: u64,
    pub path: PathBuf,
    pub length: u64,
}

impl Snapshot {
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let folder = Folder::read_only(path.as_ref())?;
        let guard = folder.lock_shared()?;
        let piece = |start| {
            let path = folder.segment(start);
            let length = fs::metadata(&path)
                .map_err(LogError::io("find", &path))?
                .len();
            Ok(Piece {
                start,
                path,
                length,
            })
        };
        let segments: Vec<Piece> = folder
            .segments()?
            .into_iter()
            .map(piece)
            .collect::<Result<_>>()?;
        let path = folder.file(HEAD);
        let head = match fs::read(&path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(LogError::io("read", &path)(error)),
        };
        drop(guard);
        if segments.is_empty() && head.is_none() {
            return Err(LogError::NoLog(folder.path().to_owned()));
        }
        Ok(Self {
            folder,
            segments,
            head,
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

    /// The public key that lies beside the log.
    pub fn key(&self) -> Result<PublicKey> {
        let path = self.folder.file(keys::PUBLIC);
        let wrong = |problem: String| LogError::Key {
            path: path.clone(),
            problem,
        };
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        PublicKey::parse(&text).map_err(|error| wrong(error.to_string()))
    }

    pub(crate) fn segments(&self) -> &[Piece] {
        &self.segments
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn nodes(&self) -> Result<NodeFile> {
        let path = self.folder.file(nodes::NAME);
        let file = File::open(&path);
        Ok(NodeFile(file.map_err(LogError::io("open", &path))?))
    }

    /// The line of one record, without its newline.
    pub fn line(&self, seq: u64) -> Result<Vec<u8>> {
        let piece = self.segments.iter().rev().find(|piece| piece.start <= seq);
        let piece = piece.ok_or(LogError::NoRecord(seq))?;
        let wrong = || LogError::io("read", &piece.path);
        let file = File::open(&piece.path).map_err(wrong())?;
        let offset = segment::find(&file, &piece.path, seq)?.ok_or(LogError::NoRecord(seq))?;
        let found = segment::line_at(&file, offset).map_err(wrong())?;
        Ok(found.ok_or(LogError::NoRecord(seq))?.0)
    }
}

impl Piece {
    pub fn lines(&self, from: u64) -> Result<Lines<io::Take<File>>> {
        let wrong = || LogError::io("read", &self.path);
        let mut file = File::open(&self.path).map_err(wrong())?;
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
                    .map_err(|_| LogError::damaged(seq, "its hash does not fit"))?;
                self.offset += length;
                if !each(&line) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
