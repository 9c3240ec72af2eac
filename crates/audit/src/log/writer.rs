//! The end of the log, and how it grows.
//!
//! Every process that writes keeps the tree's edge in memory. Under the lock it first reads what
//! others have added, then adds its own. The lock is not held during a sync.
//!
//! What others have added counts up to the last line that carries a tag of the log's key. What
//! comes after was left by a killed writer, or added without the key: it is cut off, and that is
//! recorded. So no head ever covers it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::Timestamp;

use super::Options;
use super::directory::LogDirectory;
use super::error::{LogError, Result};
use super::keys;
use super::lines::Lines;
use super::nodes::NodeFile;
use super::queue::Mark;
use super::segment::Segment;
use crate::canonical::{Texts, to_canonical};
use crate::line::{self, Line, LineError};
use crate::note::{PublicKey, SecretKey};
use crate::receipt::digest;
use crate::tag::TagKey;
use crate::tree::Frontier;
use crate::{Event, Hash, Head, Record};

pub(crate) const HEAD: &str = "head";

#[derive(Debug)]
pub(crate) struct Writer {
    pub directory: LogDirectory,
    pub options: Options,
    pub key: SecretKey,
    /// Vouches for lines; made of the key.
    pub tags: TagKey,
    /// Nothing until the first head is written.
    pub head: Option<File>,
    pub nodes: NodeFile,
    pub segment: Segment,
    pub frontier: Frontier,
    /// The hash of the last line.
    pub last: Hash,
    /// Room for lines and nodes, kept from one time to the next.
    pub room: Room,
    /// Records of repairs that wait to be written.
    pub repairs: Vec<String>,
    /// The size of the newest head that was seen on disk.
    pub published: u64,
    /// Why nothing more may be written.
    pub broken: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Room {
    lines: Vec<u8>,
    nodes: Vec<u8>,
}

impl Room {
    /// More than this is given back.
    const KEPT: usize = 1 << 20;

    fn clear(&mut self) {
        for bytes in [&mut self.lines, &mut self.nodes] {
            bytes.clear();
            bytes.shrink_to(Self::KEPT);
        }
    }
}

impl Writer {
    pub(super) fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// Adds records, so that they outlive this process.
    pub(super) fn write(&mut self, records: &Texts) -> Result<Mark> {
        if let Some(reason) = &self.broken {
            return Err(LogError::Broken(reason.clone()));
        }
        let _guard = self.directory.lock()?;
        self.go_on_with(records)?;
        Ok(Mark {
            file: self.segment.file.clone(),
            frontier: self.frontier.clone(),
        })
    }

    /// The signed head over everything that is in the log.
    pub(super) fn head(&mut self) -> Result<String> {
        let _guard = self.directory.lock()?;
        self.go_on_with(&Texts::default())?;
        self.seal()?;
        Ok(self.sign(&self.frontier))
    }

    /// Reads what others have added, then adds records of our own. The lock is held.
    pub(super) fn go_on_with(&mut self, records: &Texts) -> Result<()> {
        self.refresh(false)?;
        let repairs = std::mem::take(&mut self.repairs);
        let added = self.add(repairs.iter().map(String::as_str).chain(records.iter()));
        if added.is_err() {
            self.repairs = repairs;
        }
        added
    }

    /// Adds lines at the end. The lock is held, and everything before was read.
    pub(super) fn add<'a>(&mut self, records: impl Iterator<Item = &'a str>) -> Result<()> {
        let mut room = std::mem::take(&mut self.room);
        let added = self.add_in(&mut room, records);
        room.clear();
        self.room = room;
        added
    }

    fn add_in<'a>(
        &mut self,
        room: &mut Room,
        records: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        let Room { lines, nodes } = room;
        let mut frontier = self.frontier.clone();
        let mut last = self.last;
        let mut records = records.peekable();
        while let Some(record) = records.next() {
            // The tag of the last line covers all of them.
            let tags = records.peek().is_none().then_some(&self.tags);
            last = line::write(record, frontier.size(), &last, tags, lines);
            frontier.push(last, |hash| nodes.extend_from_slice(&hash.0));
        }
        if lines.is_empty() {
            return Ok(());
        }
        let limit = self.options.segment_bytes;
        if self.segment.offset > 0 && self.segment.offset + lines.len() as u64 > limit {
            self.next_segment()?;
        }
        // The nodes go first, so that no line is ever without them.
        self.nodes.write(self.size(), nodes).map_err(LogError::io(
            "write",
            &self.directory.file(super::nodes::NAME),
        ))?;
        if let Err(error) = (&*self.segment.file).write_all(lines) {
            // The next writer would cut off the rest of a line anyway.
            let _ = self.segment.cut(self.segment.offset);
            return Err(LogError::io("write", &self.segment.path)(error));
        }
        self.segment.offset += lines.len() as u64;
        self.frontier = frontier;
        self.last = last;
        Ok(())
    }

    fn next_segment(&mut self) -> Result<()> {
        // A sync of the new segment must imply that the old one is on disk.
        self.sync_segment()?;
        self.segment = Segment::open(&self.directory, self.size())?;
        self.directory.sync()
    }

    pub(super) fn sync_segment(&mut self) -> Result<()> {
        let synced = self.segment.file.sync_data();
        synced.map_err(|error| self.give_up(error))
    }

    /// The system may have dropped what it could not write: nothing can be built on it.
    pub(super) fn give_up(&mut self, error: io::Error) -> LogError {
        self.broken = Some(error.to_string());
        LogError::io("sync", &self.segment.path)(error)
    }

    /// Signs for records that are safe, unless that was done for later ones.
    pub(super) fn publish(&mut self, frontier: &Frontier) -> Result<()> {
        if self.published >= frontier.size() {
            return Ok(());
        }
        let note = self.sign(frontier);
        let _guard = self.directory.lock()?;
        self.write_head(frontier.size(), &note)
    }

    pub(super) fn sign(&self, frontier: &Frontier) -> String {
        let head = Head {
            origin: self.key.public().name().to_owned(),
            size: frontier.size(),
            root: frontier.root(),
        };
        head.sign(&self.key)
    }

    /// Writes a signed head, unless another process has written a later one. The lock is held.
    pub(super) fn write_head(&mut self, size: u64, note: &str) -> Result<()> {
        let path = self.directory.file(HEAD);
        let Some(file) = &self.head else {
            self.directory.replace(HEAD, note.as_bytes())?;
            self.head = Some(open_head(&path)?);
            self.published = size;
            return Ok(());
        };
        self.published = published(file, &path)?;
        if self.published < size {
            // In place: heads never get shorter, and fit into what a disk writes at once.
            file.write_all_at(note.as_bytes(), 0)
                .map_err(LogError::io("write", &path))?;
            self.published = size;
        }
        Ok(())
    }

    /// Makes the end of the log safe and signs for it. The lock is held.
    pub(super) fn seal(&mut self) -> Result<()> {
        self.sync_segment()?;
        let note = self.sign(&self.frontier);
        self.write_head(self.size(), &note)
    }

    /// Reads what others have added. The lock is held.
    pub(super) fn refresh(&mut self, store: bool) -> Result<()> {
        loop {
            let length = match self.segment.length() {
                Err(LogError::Replaced) => {
                    self.jump()?;
                    continue;
                }
                length => length?,
            };
            if length < self.segment.offset {
                return Err(LogError::damaged(
                    self.size(),
                    "written records are no longer there",
                ));
            }
            if length > self.segment.offset {
                self.catch_up(length, store)?;
            }
            let next = self.directory.segment(self.size());
            if self.segment.start == self.size() || !next.exists() {
                return Ok(());
            }
            self.segment = Segment::open(&self.directory, self.size())?;
        }
    }

    fn catch_up(&mut self, length: u64, store: bool) -> Result<()> {
        let path = self.segment.path.clone();
        let wrong = || LogError::io("read", &path);
        let mut file = brig_input::open_unlinked(&path).map_err(wrong())?;
        file.seek(SeekFrom::Start(self.segment.offset))
            .map_err(wrong())?;
        let mut lines = Lines::new(io::Read::take(file, length - self.segment.offset));
        // What was read and no tag covers yet.
        let mut frontier = self.frontier.clone();
        let (mut last, mut offset) = (self.last, self.segment.offset);
        let mut nodes = Vec::new();
        while let Some(bytes) = lines.next().map_err(wrong())? {
            offset += bytes.len() as u64 + 1;
            let line = follow(bytes, frontier.size(), &last)?;
            let (seq, tagged) = (line.seq, line.tag.is_some());
            let rotation = keys::is_rotation(line.record).then(|| line.record.to_owned());
            last = line.hash;
            frontier.push(last, |hash| nodes.extend_from_slice(&hash.0));
            if !tagged {
                continue;
            }
            if !line::is_vouched(bytes, &self.tags) {
                return Err(LogError::damaged(
                    seq,
                    "its tag was not made with this log's key",
                ));
            }
            if store {
                self.nodes.write(self.size(), &nodes).map_err(wrong())?;
            }
            nodes.clear();
            self.frontier.clone_from(&frontier);
            self.last = last;
            self.segment.offset = offset;
            if let Some(record) = rotation {
                self.rotated(seq, &record)?;
            }
        }
        if length > self.segment.offset {
            self.cut_off(length)?;
        }
        Ok(())
    }

    /// A writer was ended in the middle of a write, or somebody else wrote. Nobody was told that
    /// these lines are safe.
    fn cut_off(&mut self, length: u64) -> Result<()> {
        if self.directory.segments()?.last() != Some(&self.segment.start) {
            return Err(LogError::damaged(
                self.size(),
                "its line is incomplete, and others follow",
            ));
        }
        let wrong = || LogError::io("read", &self.segment.path);
        let bytes = length - self.segment.offset;
        let mut rest = vec![0; usize::try_from(bytes.min(1 << 20)).unwrap_or(1 << 20)];
        self.segment
            .file
            .read_exact_at(&mut rest, self.segment.offset)
            .map_err(wrong())?;
        self.segment.cut(self.segment.offset)?;
        self.repairs.push(own_record(Event::LogRepaired {
            bytes,
            digest: digest(&rest),
        })?);
        Ok(())
    }

    /// What comes after a change of keys is tagged with the new one.
    fn rotated(&mut self, seq: u64, record: &str) -> Result<()> {
        let keys = keys::check_rotation(seq, record);
        let keys = keys.filter(|(from, _)| from == self.key.public());
        let (_, to) =
            keys.ok_or_else(|| LogError::damaged(seq, "the change of keys is not signed by both"))?;
        self.settle_key(&to)
    }

    fn use_key(&mut self, key: SecretKey) {
        self.tags = key.tags();
        self.key = key;
    }

    /// Takes over a key that another process has put in force, or that a crash kept from it.
    fn settle_key(&mut self, key: &PublicKey) -> Result<()> {
        if let Some(next) = keys::load_next(&self.directory)?
            && next.public() == key
        {
            // In the order of a rotation: the key comes last, so that there is always one that has signed the head.
            self.use_key(next);
            return self.finish_rotation();
        }
        let found = keys::load(&self.directory)?.filter(|found| found.public() == key);
        let found = found.ok_or_else(|| LogError::Key {
            path: self.directory.file("key"),
            problem: "it is not the key that the log names".into(),
        })?;
        self.use_key(found);
        Ok(())
    }

    /// Replaces the key. The record of it is signed by both.
    pub(super) fn rotate_key(&mut self) -> Result<PublicKey> {
        let _guard = self.directory.lock()?;
        self.go_on_with(&Texts::default())?;
        let next = keys::create_next(&self.directory, self.key.public().name())?;
        let record = own_record(keys::rotation(self.size(), &self.key, &next))?;
        let (segment, end) = (self.segment.start, self.segment.offset);
        self.add([record.as_str()].into_iter())?;
        if let Err(error) = self.sync_segment() {
            // Whoever finds the record finishes the rotation.
            let end = if self.segment.start == segment {
                end
            } else {
                0
            };
            return match self.segment.cut(end) {
                Ok(()) => Err(error),
                Err(_) => Err(LogError::Rotated(Box::new(error))),
            };
        }
        // From here on, the next process that opens the log finishes the rotation.
        self.use_key(next);
        let finished = self.finish_rotation();
        finished.map_err(|error| LogError::Rotated(Box::new(error)))?;
        Ok(self.key.public().clone())
    }

    fn finish_rotation(&mut self) -> Result<()> {
        self.seal()?;
        if let Some(head) = &self.head {
            head.sync_data()
                .map_err(LogError::io("sync", &self.directory.file(HEAD)))?;
        }
        keys::promote(&self.directory, &self.key)
    }
}

pub(crate) fn open_head(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(LogError::io("open", path))
}

/// The size of the head on disk.
fn published(file: &File, path: &Path) -> Result<u64> {
    let mut bytes = [0; 1024];
    let count = file
        .read_at(&mut bytes, 0)
        .map_err(LogError::io("read", path))?;
    let note = String::from_utf8_lossy(&bytes[..count]);
    let head = Head::unverified(&note).map_err(|error| LogError::Head(error.to_string()))?;
    Ok(head.size)
}

/// A line that must come next.
pub(crate) fn follow<'a>(bytes: &'a mut [u8], seq: u64, prev: &Hash) -> Result<Line<'a>> {
    let line = Line::check(bytes).map_err(|error| {
        LogError::damaged(
            seq,
            match error {
                LineError::Format => "it is not a record",
                LineError::Hash => "it was changed",
            },
        )
    })?;
    if line.seq != seq || line.prev != *prev {
        return Err(LogError::damaged(
            seq,
            format!("record {} is in its place", line.seq),
        ));
    }
    Ok(line)
}

/// A record of the log about itself.
pub(crate) fn own_record(event: Event) -> Result<String> {
    Ok(to_canonical(&Record {
        at: Timestamp::now(),
        agent: String::new(),
        session: String::new(),
        execution: None,
        event,
    })?)
}
