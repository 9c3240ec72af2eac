//! The end of the log, and how it grows.
//!
//! Every process that writes keeps the tree's edge in memory. Under the lock it first reads what
//! others have added, then adds its own. The lock is not held while the disk is waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::Timestamp;

use super::Options;
use super::error::{LogError, Result};
use super::folder::Folder;
use super::keys;
use super::lines::Lines;
use super::nodes::NodeFile;
use super::queue::Mark;
use super::segment::Segment;
use crate::canonical::{Texts, to_canonical};
use crate::line::{self, Flaw, Line};
use crate::note::{PublicKey, SecretKey};
use crate::receipt::digest;
use crate::tree::Frontier;
use crate::{Event, Hash, Head, Record};

pub(crate) const HEAD: &str = "head";

#[derive(Debug)]
pub(crate) struct Writer {
    pub folder: Folder,
    pub options: Options,
    pub key: SecretKey,
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
    pub fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// Adds records, so that they outlive this process.
    pub fn write(&mut self, records: &Texts) -> Result<Mark> {
        if let Some(reason) = &self.broken {
            return Err(LogError::Broken(reason.clone()));
        }
        let _guard = self.folder.lock()?;
        self.go_on_with(records)?;
        Ok(Mark {
            file: self.segment.file.clone(),
            frontier: self.frontier.clone(),
        })
    }

    /// The signed head over everything that is in the log.
    pub fn head(&mut self) -> Result<String> {
        let _guard = self.folder.lock()?;
        self.go_on_with(&Texts::default())?;
        self.seal()?;
        Ok(self.sign(&self.frontier))
    }

    /// Reads what others have added, then adds records of our own. The lock is held.
    fn go_on_with(&mut self, records: &Texts) -> Result<()> {
        self.refresh(false)?;
        let repairs = std::mem::take(&mut self.repairs);
        let added = self.add(repairs.iter().map(String::as_str).chain(records.iter()));
        if added.is_err() {
            self.repairs = repairs;
        }
        added
    }

    /// Adds lines at the end. The lock is held, and everything before was read.
    pub fn add<'a>(&mut self, records: impl Iterator<Item = &'a str>) -> Result<()> {
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
        for record in records {
            last = line::write(record, frontier.size(), &last, lines);
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
        self.nodes
            .write(self.size(), nodes)
            .map_err(LogError::io("write", &self.folder.file(super::nodes::NAME)))?;
        if let Err(error) = (&*self.segment.file).write_all(lines) {
            // What is left of a line would be cut off anyway by whoever comes next.
            let _ = self.segment.cut(self.segment.offset);
            return Err(LogError::io("write", &self.segment.path)(error));
        }
        self.segment.offset += lines.len() as u64;
        self.frontier = frontier;
        self.last = last;
        Ok(())
    }

    fn next_segment(&mut self) -> Result<()> {
        // Whoever syncs the new one must be able to rely on the old one.
        self.sync_segment()?;
        self.segment = Segment::open(&self.folder, self.size())?;
        self.folder.sync()
    }

    pub fn sync_segment(&mut self) -> Result<()> {
        let synced = self.segment.file.sync_data();
        synced.map_err(|error| self.give_up(error))
    }

    /// The system may have dropped what it could not write: nothing can be built on it.
    pub fn give_up(&mut self, error: io::Error) -> LogError {
        self.broken = Some(error.to_string());
        LogError::io("sync", &self.segment.path)(error)
    }

    /// Signs for records that are safe, unless that was done for later ones.
    pub fn publish(&mut self, frontier: &Frontier) -> Result<()> {
        if self.published >= frontier.size() {
            return Ok(());
        }
        let note = self.sign(frontier);
        let _guard = self.folder.lock()?;
        self.write_head(frontier.size(), &note)
    }

    pub fn sign(&self, frontier: &Frontier) -> String {
        let head = Head {
            origin: self.key.public().name().to_owned(),
            size: frontier.size(),
            root: frontier.root(),
        };
        head.sign(&self.key)
    }

    /// Writes a signed head, unless another process has written a later one. The lock is held.
    pub fn write_head(&mut self, size: u64, note: &str) -> Result<()> {
        let path = self.folder.file(HEAD);
        let Some(file) = &self.head else {
            self.folder.replace(HEAD, note.as_bytes())?;
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
    pub fn seal(&mut self) -> Result<()> {
        self.sync_segment()?;
        let note = self.sign(&self.frontier);
        self.write_head(self.size(), &note)
    }

    /// Reads what others have added. The lock is held.
    pub fn refresh(&mut self, store: bool) -> Result<()> {
        loop {
            let length = self.segment.length()?;
            if length < self.segment.offset {
                return Err(LogError::damaged(
                    self.size(),
                    "what was written is no longer there",
                ));
            }
            if length > self.segment.offset {
                self.catch_up(length, store)?;
            }
            let next = self.folder.segment(self.size());
            if self.segment.start == self.size() || !next.exists() {
                return Ok(());
            }
            self.segment = Segment::open(&self.folder, self.size())?;
        }
    }

    fn catch_up(&mut self, length: u64, store: bool) -> Result<()> {
        let path = self.segment.path.clone();
        let wrong = || LogError::io("read", &path);
        let mut file = File::open(&path).map_err(wrong())?;
        file.seek(SeekFrom::Start(self.segment.offset))
            .map_err(wrong())?;
        let mut lines = Lines::new(io::Read::take(file, length - self.segment.offset));
        let mut rotated = None;
        while let Some(bytes) = lines.next().map_err(wrong())? {
            let size = bytes.len() as u64 + 1;
            let line = follow(bytes, self.frontier.size(), &self.last)?;
            if keys::is_rotation(line.record) {
                rotated = Some(keys::check_rotation(line.seq, line.record).ok_or_else(|| {
                    LogError::damaged(line.seq, "the change of keys is not signed by both")
                })?);
            }
            let mut nodes = Vec::new();
            let before = self.frontier.size();
            self.frontier
                .push(line.hash, |hash| nodes.extend_from_slice(&hash.0));
            if store {
                self.nodes.write(before, &nodes).map_err(wrong())?;
            }
            self.last = line.hash;
            self.segment.offset += size;
        }
        if let Some((_, key)) = rotated {
            self.settle_key(&key)?;
        }
        if length > self.segment.offset {
            self.cut_off(length)?;
        }
        Ok(())
    }

    /// A writer was ended in the middle of a line. Nobody was told that this line is safe.
    fn cut_off(&mut self, length: u64) -> Result<()> {
        if self.folder.segments()?.last() != Some(&self.segment.start) {
            return Err(LogError::damaged(
                self.size(),
                "its line is not complete, and others follow",
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

    /// Takes over a key that another process has put in force, or that a crash kept from it.
    fn settle_key(&mut self, key: &PublicKey) -> Result<()> {
        if let Some(next) = keys::load_next(&self.folder)?
            && next.public() == key
        {
            keys::promote(&self.folder, &next)?;
        }
        let found = keys::load(&self.folder)?.filter(|found| found.public() == key);
        self.key = found.ok_or_else(|| LogError::Key {
            path: self.folder.file("key"),
            problem: "it is not the one that the log speaks of".into(),
        })?;
        Ok(())
    }

    /// Replaces the key. The record of it is signed by both.
    pub fn rotate_key(&mut self) -> Result<()> {
        let _guard = self.folder.lock()?;
        self.go_on_with(&Texts::default())?;
        let next = keys::create_next(&self.folder, self.key.public().name())?;
        let record = own_record(keys::rotation(self.size(), &self.key, &next))?;
        self.add([record.as_str()].into_iter())?;
        self.sync_segment()?;
        // From here on, whoever opens the log finishes what is left.
        self.key = next;
        self.seal()?;
        if let Some(head) = &self.head {
            head.sync_data()
                .map_err(LogError::io("sync", &self.folder.file(HEAD)))?;
        }
        keys::promote(&self.folder, &self.key)
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
    let line = Line::check(bytes).map_err(|flaw| {
        LogError::damaged(
            seq,
            match flaw {
                Flaw::Format => "it is no record",
                Flaw::Hash => "it was changed",
            },
        )
    })?;
    if line.seq != seq || line.prev != *prev {
        return Err(LogError::damaged(
            seq,
            format!("record {} stands in its place", line.seq),
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
